//! The buffers of Arrow arrays. They are filled without the lock of the interpreter.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::page::Payload;

/// Adding this number to a small one leaves no bits for a fraction.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// Offsets, bytes, and, where a value is missing, the bitmap of those that are there.
pub type Buffers<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

fn filled<'py>(
    py: Python<'py>,
    size: usize,
    fill: impl FnOnce(&mut [u8]) -> Option<()> + Send,
) -> Option<Bound<'py, PyBytes>> {
    let fill = |room: &mut [u8]| {
        py.allow_threads(|| fill(room)).ok_or_else(|| PyValueError::new_err("not base64"))
    };
    PyBytes::new_with(py, size, fill).ok()
}

/// Returns the buffers of a binary array, or of one of strings, whose bytes must be UTF-8.
///
/// `None` if something is not base64, or if they need offsets of 64 bits.
pub fn binary<'py>(py: Python<'py>, pieces: &[Option<Payload<'_>>]) -> Option<Buffers<'py>> {
    let mut ends = Vec::with_capacity(pieces.len());
    let mut end = 0_usize;
    for piece in pieces {
        end += piece.map_or(Some(0), Payload::size)?;
        ends.push(i32::try_from(end).ok()?);
    }
    let offsets = filled(py, 4 * (ends.len() + 1), |room| {
        for (place, end) in room[4..].chunks_exact_mut(4).zip(&ends) {
            place.copy_from_slice(&end.to_ne_bytes());
        }
        Some(())
    })?;
    let bytes = filled(py, end, |room| {
        let mut start = 0;
        for (piece, &end) in pieces.iter().zip(&ends) {
            if let Some(piece) = piece {
                piece.write(&mut room[start..end as usize])?;
            }
            start = end as usize;
        }
        Some(())
    })?;
    if pieces.iter().all(Option::is_some) {
        return Some((offsets, bytes, None));
    }
    let mut bits = vec![0_u8; (pieces.len() + 7) / 8];
    for (at, piece) in pieces.iter().enumerate() {
        bits[at / 8] |= u8::from(piece.is_some()) << (at % 8);
    }
    Some((offsets, bytes, Some(PyBytes::new(py, &bits))))
}

/// Returns the buffer of an array of timestamps in microseconds.
pub fn timestamps<'py>(py: Python<'py>, epoch_seconds: &[f64]) -> Option<Bound<'py, PyBytes>> {
    filled(py, 8 * epoch_seconds.len(), |room| {
        for (place, &seconds) in room.chunks_exact_mut(8).zip(epoch_seconds) {
            let whole = seconds.trunc();
            // Half to even, as every addition rounds.
            let micros = ((seconds - whole) * 1e6 + ROUNDING) - ROUNDING;
            let total = (whole as i64).saturating_mul(1_000_000).saturating_add(micros as i64);
            place.copy_from_slice(&total.to_ne_bytes());
        }
        Some(())
    })
}
