//! The costly parts of kinesis-publishers: pure functions over bytes.
//!
//! The code in Python is the reference. A function here returns `None` for what it does not expect,
//! damage included, and the reference decides. What it returns is what the reference returns.
#![forbid(unsafe_code)]

use base64_simd::STANDARD;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyList, PyString};

mod aggregates;
mod cbor;
mod json;
mod page;

use page::{Page, Payload};

/// What the functions take and return. kinesis-publishers uses those with its own number.
const INTERFACE: u32 = 1;

/// Payloads, partition keys, sequence numbers, arrivals in epoch seconds, encryption types or
/// `None`, the next iterator, the continuation, and the lag in milliseconds.
type Columns<'py> = (
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
    Option<Bound<'py, PyList>>,
    Option<String>,
    Option<String>,
    Option<i64>,
);

fn payload<'py>(py: Python<'py>, payload: Payload<'_>) -> Option<Bound<'py, PyBytes>> {
    match payload {
        Payload::Bytes(bytes) => Some(PyBytes::new(py, bytes)),
        Payload::Base64(text) => {
            let size = STANDARD.decoded_length(text).ok()?;
            PyBytes::new_with(py, size, |room| {
                STANDARD
                    .decode(text, base64_simd::Out::from_slice(room))
                    .map(|_| ())
                    .map_err(|_| pyo3::exceptions::PyValueError::new_err(()))
            })
            .ok()
        }
    }
}

/// Returns the columns of a body; `None` for the reference to decide.
#[pyfunction]
fn columns<'py>(py: Python<'py>, body: &[u8], is_cbor: bool) -> PyResult<Option<Columns<'py>>> {
    let page = match if is_cbor { cbor::parse(body) } else { json::parse(body) } {
        None => return Ok(None),
        Some(page) => page,
    };
    // For the end of a shard it would be too little.
    if page.next_shard_iterator.as_deref() == Some("") {
        return Ok(None);
    }
    let Page { rows, next_shard_iterator, continuation, millis_behind_latest } = page;
    let mut payloads = Vec::with_capacity(rows.len());
    for row in &rows {
        match payload(py, row.payload) {
            None => return Ok(None),
            Some(bytes) => payloads.push(bytes),
        }
    }
    let keys =
        rows.iter().map(|row| row.partition_key.as_deref().map(|key| PyString::new(py, key)));
    let numbers = rows.iter().map(|row| PyString::new(py, row.sequence_number));
    let arrivals = rows.iter().map(|row| PyFloat::new(py, row.arrival_epoch_seconds));
    let mut last: Option<(&str, Bound<'py, PyString>)> = None;
    let encryption = if rows.iter().any(|row| row.encryption_type.is_some()) {
        let kinds = rows.iter().map(|row| {
            row.encryption_type.map(|kind| match &last {
                Some((known, text)) if *known == kind => text.clone(),
                _ => {
                    let text = PyString::new(py, kind);
                    last = Some((kind, text.clone()));
                    text
                }
            })
        });
        Some(PyList::new(py, kinds)?)
    } else {
        None
    };
    Ok(Some((
        PyList::new(py, payloads)?,
        PyList::new(py, keys)?,
        PyList::new(py, numbers)?,
        PyList::new(py, arrivals)?,
        encryption,
        next_shard_iterator.map(String::from),
        continuation.map(String::from),
        millis_behind_latest,
    )))
}

/// Payloads, partition keys, and explicit hash keys or `None`, of the records of an aggregate.
type Unpacked<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, Option<Bound<'py, PyList>>);

/// Returns the records of an aggregate; `None` for the reference to decide.
#[pyfunction]
fn unpack<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Option<Unpacked<'py>>> {
    let found = match aggregates::unpack(data) {
        None => return Ok(None),
        Some(found) => found,
    };
    let texts =
        |table: &[&str]| -> Vec<_> { table.iter().map(|one| PyString::new(py, one)).collect() };
    let (keys, hash_keys) = (texts(&found.keys), texts(&found.hash_keys));
    let records = &found.records;
    let own_hash_keys = if records.iter().any(|one| one.hash_key.is_some()) {
        Some(PyList::new(py, records.iter().map(|one| one.hash_key.map(|at| &hash_keys[at])))?)
    } else {
        None
    };
    Ok(Some((
        PyList::new(py, records.iter().map(|one| PyBytes::new(py, one.data)))?,
        PyList::new(py, records.iter().map(|one| &keys[one.key]))?,
        own_hash_keys,
    )))
}

/// Returns an aggregate of the first records, and how many they are; nothing packs a single one.
#[pyfunction]
fn pack<'py>(
    py: Python<'py>,
    payloads: Vec<Bound<'py, PyBytes>>,
    keys: Vec<Bound<'py, PyString>>,
    max_bytes: usize,
    max_records: usize,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let texts: Vec<&str> = keys.iter().map(|one| one.to_str()).collect::<PyResult<_>>()?;
    let payloads: Vec<&[u8]> = payloads.iter().map(|one| one.as_bytes()).collect();
    let (data, count) = aggregates::pack(&payloads, &texts, max_bytes, max_records);
    Ok((PyBytes::new(py, &data), count))
}

/// Returns the hash keys of partition keys.
#[pyfunction]
fn hash_keys(keys: Vec<Bound<'_, PyString>>) -> PyResult<Vec<u128>> {
    keys.iter().map(|one| Ok(aggregates::hash_key(one.to_str()?))).collect()
}

#[pymodule]
fn kinesis_publishers_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(columns, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(hash_keys, module)?)?;
    Ok(())
}
