//! Records as they stand in the body of an answer, before they become columns.

use std::borrow::Cow;

use base64_simd::{Out, STANDARD};

/// The year 10,000 in epoch seconds: a later arrival is beyond any calendar.
const CALENDAR_END: f64 = 253_402_300_800.0;

/// The payload of a record: the bytes of CBOR, or the base64 of JSON, which is not checked yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload<'a> {
    Bytes(&'a [u8]),
    Base64(&'a [u8]),
}

impl Payload<'_> {
    /// How many bytes it has; `None` if that already shows that it is no base64.
    pub fn size(self) -> Option<usize> {
        match self {
            Payload::Bytes(bytes) => Some(bytes.len()),
            Payload::Base64(text) => STANDARD.decoded_length(text).ok(),
        }
    }

    /// Whether it may begin like an aggregate.
    pub fn may_be_aggregate(self) -> bool {
        match self {
            Payload::Bytes(bytes) => bytes.starts_with(b"\xf3\x89\x9a\xc2"),
            // What the first bytes are in base64, without the bits that it shares.
            Payload::Base64(text) => text.starts_with(b"84maw"),
        }
    }

    /// Writes its bytes into a room of its size.
    pub fn write(self, room: &mut [u8]) -> Option<()> {
        match self {
            Payload::Bytes(bytes) => room.copy_from_slice(bytes),
            Payload::Base64(text) => {
                STANDARD.decode(text, Out::from_slice(room)).ok()?;
            }
        }
        Some(())
    }
}

#[derive(Debug, PartialEq)]
pub struct Row<'a> {
    pub payload: Payload<'a>,
    pub partition_key: Option<Cow<'a, str>>,
    pub sequence_number: &'a str,
    pub arrival_epoch_seconds: f64,
    pub encryption_type: Option<&'a str>,
}

/// What an answer of GetRecords or an event of a subscription contains, child shards excepted.
#[derive(Debug, Default, PartialEq)]
pub struct Page<'a> {
    pub rows: Vec<Row<'a>>,
    pub next_shard_iterator: Option<Cow<'a, str>>,
    pub continuation: Option<Cow<'a, str>>,
    pub millis_behind_latest: Option<i64>,
}

/// Returns a sequence number that is a decimal number.
pub fn decimal(text: &str) -> Option<&str> {
    // Without a branch per byte, which a compiler turns into vector instructions.
    let is_number = text.bytes().fold(!text.is_empty(), |sum, one| sum & one.is_ascii_digit());
    is_number.then_some(text)
}

/// Returns an arrival that a calendar has.
pub fn arrival(seconds: f64) -> Option<f64> {
    (0.0..CALENDAR_END).contains(&seconds).then_some(seconds)
}

/// The members of a record that were met so far.
#[derive(Default)]
pub struct RowParts<'a> {
    pub payload: Option<Payload<'a>>,
    pub partition_key: Option<Option<Cow<'a, str>>>,
    pub sequence_number: Option<&'a str>,
    pub arrival: Option<f64>,
    pub encryption_type: Option<Option<&'a str>>,
}

impl<'a> RowParts<'a> {
    pub fn row(self) -> Option<Row<'a>> {
        Some(Row {
            payload: self.payload?,
            partition_key: self.partition_key.flatten(),
            sequence_number: decimal(self.sequence_number?)?,
            arrival_epoch_seconds: arrival(self.arrival?)?,
            encryption_type: self.encryption_type.flatten(),
        })
    }
}

/// Keeps a member, and refuses a second one.
pub fn set<T>(place: &mut Option<T>, value: Option<T>) -> Option<()> {
    if place.is_some() {
        return None;
    }
    *place = Some(value?);
    Some(())
}
