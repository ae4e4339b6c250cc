//! The costly parts of kinesis-publishers: pure functions over bytes.
//!
//! The code in Python is the reference. A function here returns `None` for what it does not expect,
//! damage included, and the reference decides. What it returns is what the reference returns.
#![forbid(unsafe_code)]

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyList, PyString};

mod aggregates;
mod arrays;
mod cbor;
mod json;
mod page;

use page::{Page, Payload, Row};

/// What the functions take and return. kinesis-publishers uses those with its own number.
const INTERFACE: u32 = 2;

/// Payloads, partition keys, sequence numbers, arrivals in epoch seconds, encryption types or
/// `None`, the next iterator, the continuation, the lag in milliseconds, whether the sequence numbers
/// have one length and ascend, and whether a payload may be an aggregate. The first three are lists,
/// or the buffers of arrays.
type Columns<'py> = (
    PyObject,
    PyObject,
    PyObject,
    Bound<'py, PyList>,
    Option<Bound<'py, PyList>>,
    Option<String>,
    Option<String>,
    Option<i64>,
    bool,
    bool,
);

fn payload<'py>(py: Python<'py>, payload: Payload<'_>) -> Option<Bound<'py, PyBytes>> {
    if let Payload::Bytes(bytes) = payload {
        return Some(PyBytes::new(py, bytes));
    }
    let write =
        |room: &mut [u8]| payload.write(room).ok_or_else(|| PyValueError::new_err("not base64"));
    PyBytes::new_with(py, payload.size()?, write).ok()
}

fn lists(py: Python<'_>, rows: &[Row<'_>]) -> Option<[PyObject; 3]> {
    let mut payloads = Vec::with_capacity(rows.len());
    for row in rows {
        payloads.push(payload(py, row.payload)?);
    }
    let keys =
        rows.iter().map(|row| row.partition_key.as_deref().map(|key| PyString::new(py, key)));
    let numbers = rows.iter().map(|row| PyString::new(py, row.sequence_number));
    Some([
        PyList::new(py, payloads).ok()?.into(),
        PyList::new(py, keys).ok()?.into(),
        PyList::new(py, numbers).ok()?.into(),
    ])
}

fn text(text: &str) -> Payload<'_> {
    Payload::Bytes(text.as_bytes())
}

fn arrays(py: Python<'_>, rows: &[Row<'_>]) -> Option<[PyObject; 3]> {
    let payloads: Vec<_> = rows.iter().map(|row| Some(row.payload)).collect();
    let numbers: Vec<_> = rows.iter().map(|row| Some(text(row.sequence_number))).collect();
    let keys: Vec<_> = rows.iter().map(|row| row.partition_key.as_deref().map(text)).collect();
    let object = |column: &[Option<Payload<'_>>]| -> Option<PyObject> {
        Some(arrays::binary(py, column)?.into_pyobject(py).ok()?.into_any().unbind())
    };
    Some([object(&payloads)?, object(&keys)?, object(&numbers)?])
}

/// Returns texts that most often repeat the last one.
fn repeated<'py, 'a>(
    py: Python<'py>,
    texts: impl ExactSizeIterator<Item = Option<&'a str>>,
) -> Option<Bound<'py, PyList>> {
    let mut last: Option<(&str, Bound<'py, PyString>)> = None;
    let mut object = |text: &'a str| match &last {
        Some((known, object)) if *known == text => object.clone(),
        _ => {
            let object = PyString::new(py, text);
            last = Some((text, object.clone()));
            object
        }
    };
    PyList::new(py, texts.map(|one| one.map(&mut object))).ok()
}

/// Returns the columns of a body; `None` for the reference to decide.
#[pyfunction]
fn columns<'py>(
    py: Python<'py>,
    body: &[u8],
    is_cbor: bool,
    is_packed: bool,
) -> Option<Columns<'py>> {
    let page = py.allow_threads(|| if is_cbor { cbor::parse(body) } else { json::parse(body) })?;
    // For the end of a shard it would be too little.
    if page.next_shard_iterator.as_deref() == Some("") {
        return None;
    }
    let Page { rows, next_shard_iterator, continuation, millis_behind_latest } = page;
    let is_ascending = rows.windows(2).all(|pair| {
        let [one, next] = [pair[0].sequence_number, pair[1].sequence_number];
        one.len() == next.len() && one < next
    });
    let [payloads, keys, numbers] = if is_packed { arrays(py, &rows)? } else { lists(py, &rows)? };
    let arrivals = rows.iter().map(|row| PyFloat::new(py, row.arrival_epoch_seconds));
    let kinds = || rows.iter().map(|row| row.encryption_type);
    let encryption =
        if kinds().any(|kind| kind.is_some()) { Some(repeated(py, kinds())?) } else { None };
    Some((
        payloads,
        keys,
        numbers,
        PyList::new(py, arrivals).ok()?,
        encryption,
        next_shard_iterator.map(String::from),
        continuation.map(String::from),
        millis_behind_latest,
        is_ascending,
        rows.iter().any(|row| row.payload.may_be_aggregate()),
    ))
}

/// Payloads, partition keys, and explicit hash keys or `None`, of the records of an aggregate.
type Unpacked<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, Option<Bound<'py, PyList>>);

/// Returns the records in the message of an aggregate; `None` for the reference to decide.
#[pyfunction]
fn unpack<'py>(py: Python<'py>, message: &[u8]) -> Option<Unpacked<'py>> {
    let found = aggregates::unpack(message)?;
    let texts =
        |table: &[&str]| -> Vec<_> { table.iter().map(|one| PyString::new(py, one)).collect() };
    let (keys, hash_keys) = (texts(&found.keys), texts(&found.hash_keys));
    let records = &found.records;
    let own_hash_keys = if records.iter().any(|one| one.hash_key.is_some()) {
        Some(
            PyList::new(py, records.iter().map(|one| one.hash_key.map(|at| &hash_keys[at])))
                .ok()?,
        )
    } else {
        None
    };
    Some((
        PyList::new(py, records.iter().map(|one| PyBytes::new(py, one.data))).ok()?,
        PyList::new(py, records.iter().map(|one| &keys[one.key])).ok()?,
        own_hash_keys,
    ))
}

type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyString>);

/// Returns the first of payloads and partition keys: all that fit with six bytes around each.
fn pairs<'py>(
    payloads: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    max_bytes: usize,
    max_records: usize,
) -> PyResult<Vec<Pair<'py>>> {
    let (mut pairs, mut size) = (Vec::new(), 0);
    for (data, key) in payloads.iter().zip(keys).take(max_records) {
        let (data, key) = (data.downcast_into::<PyBytes>()?, key.downcast_into::<PyString>()?);
        size += data.as_bytes().len() + 6;
        pairs.push((data, key));
        if size > max_bytes {
            break;
        }
    }
    Ok(pairs)
}

fn rows<'a>(pairs: &'a [Pair<'_>]) -> PyResult<Vec<(&'a [u8], &'a str)>> {
    pairs.iter().map(|(data, key)| Ok((data.as_bytes(), key.to_str()?))).collect()
}

/// Returns the message of an aggregate of the first records, and how many they are; nothing packs a
/// single one.
#[pyfunction]
fn pack<'py>(
    py: Python<'py>,
    payloads: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    max_bytes: usize,
    max_records: usize,
) -> PyResult<(Bound<'py, PyBytes>, usize)> {
    let pairs = pairs(payloads, keys, max_bytes, max_records)?;
    let (message, count) = aggregates::pack(&rows(&pairs)?, max_bytes);
    Ok((PyBytes::new(py, &message), count))
}

/// Returns the body of a PutRecords call in CBOR, with one more member; `None` for the reference.
#[pyfunction]
fn put_request<'py>(
    py: Python<'py>,
    payloads: &Bound<'py, PyList>,
    keys: &Bound<'py, PyList>,
    name: &str,
    value: &str,
) -> Option<Bound<'py, PyBytes>> {
    let pairs = pairs(payloads, keys, usize::MAX, usize::MAX).ok()?;
    Some(PyBytes::new(py, &cbor::request(&rows(&pairs).ok()?, name, value)))
}

/// Returns the shards and the sequence numbers in an answer of PutRecords in CBOR that refuses no
/// record; `None` for the reference to decide.
#[pyfunction]
fn put_answer<'py>(
    py: Python<'py>,
    body: &[u8],
) -> Option<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let places = cbor::places(body)?;
    let shards = repeated(py, places.iter().map(|one| Some(one.0)))?;
    Some((shards, PyList::new(py, places.iter().map(|one| one.1)).ok()?))
}

/// Returns the hash keys of partition keys.
#[pyfunction]
fn hash_keys(keys: Vec<Bound<'_, PyString>>) -> PyResult<Vec<u128>> {
    keys.iter().map(|one| Ok(aggregates::hash_key(one.to_str()?))).collect()
}

/// Returns the buffers of an Arrow array of binary or string; `None` for the reference to decide.
#[pyfunction]
fn joined<'py>(py: Python<'py>, values: &Bound<'py, PyAny>) -> Option<arrays::Buffers<'py>> {
    let values: Vec<Bound<'py, PyAny>> = values.downcast::<PyList>().ok()?.iter().collect();
    let mut pieces = Vec::with_capacity(values.len());
    for value in &values {
        pieces.push(if let Ok(bytes) = value.downcast_exact::<PyBytes>() {
            Some(Payload::Bytes(bytes.as_bytes()))
        } else if let Ok(value) = value.downcast_exact::<PyString>() {
            Some(text(value.to_str().ok()?))
        } else {
            value.is_none().then_some(())?;
            None
        });
    }
    arrays::binary(py, &pieces)
}

/// Returns the microseconds of times in epoch seconds as 64-bit integers.
#[pyfunction]
fn microseconds<'py>(py: Python<'py>, epoch_seconds: Vec<f64>) -> Option<Bound<'py, PyBytes>> {
    arrays::timestamps(py, &epoch_seconds)
}

#[pymodule]
fn kinesis_publishers_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_function(wrap_pyfunction!(columns, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(put_request, module)?)?;
    module.add_function(wrap_pyfunction!(put_answer, module)?)?;
    module.add_function(wrap_pyfunction!(hash_keys, module)?)?;
    module.add_function(wrap_pyfunction!(joined, module)?)?;
    module.add_function(wrap_pyfunction!(microseconds, module)?)?;
    Ok(())
}
