//! Kinesis' CBOR, as far as calls with many records use it. `None` stands for everything else.

use std::borrow::Cow;
use std::str::from_utf8;

use crate::page::{set, Page, Payload, Row, RowParts};

const TIMESTAMP_TAG: u64 = 1;
const NULL: u8 = 0xf6;
const BREAK: u8 = 0xff;

// The kinds of items.
const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const SIMPLE: u8 = 7;

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.body.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, size: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(size).ok()?)?;
        let taken = self.body.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let bytes = self.body.get(self.at..self.at + SIZE)?;
        self.at += SIZE;
        bytes.try_into().ok()
    }

    /// The kind of the next item and its argument, which is `None` for an indefinite length.
    #[inline]
    fn head(&mut self) -> Option<(u8, Option<u64>)> {
        let byte = self.byte()?;
        let argument = match byte & 31 {
            low @ 0..=23 => Some(u64::from(low)),
            24 => Some(u64::from(self.byte()?)),
            25 => Some(u64::from(u16::from_be_bytes(self.array()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.array()?))),
            27 => Some(u64::from_be_bytes(self.array()?)),
            31 => None,
            _ => return None,
        };
        Some((byte >> 5, argument))
    }

    fn sized(&mut self, expected: u8) -> Option<u64> {
        match self.head()? {
            (kind, Some(argument)) if kind == expected => Some(argument),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = self.sized(BYTES)?;
        self.take(size)
    }

    fn text(&mut self) -> Option<&'a str> {
        from_utf8(self.name()?).ok()
    }

    /// The bytes of a text: those of a known name are UTF-8.
    fn name(&mut self) -> Option<&'a [u8]> {
        let size = self.sized(TEXT)?;
        self.take(size)
    }

    fn next_is(&mut self, expected: u8) -> bool {
        let is_next = self.body.get(self.at) == Some(&expected);
        self.at += usize::from(is_next);
        is_next
    }

    fn is_null(&mut self) -> bool {
        self.next_is(NULL)
    }

    fn optional_text(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() {
            return Some(None);
        }
        self.text().map(Some)
    }

    /// Calls `item` for each item of a container, which may have an indefinite length.
    fn container(&mut self, kind: u8, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let (found, count) = self.head()?;
        (found == kind).then_some(())?;
        let mut left = count.unwrap_or(u64::MAX);
        while left > 0 && !(count.is_none() && self.next_is(BREAK)) {
            item(self)?;
            left -= 1;
        }
        Some(())
    }

    /// Calls `member` with the name of each member of a map, whose value it reads or skips.
    fn map(
        &mut self,
        mut member: impl FnMut(&mut Self, &'a [u8], &mut Unknown<'a>) -> Option<()>,
    ) -> Option<()> {
        let mut unknown = Unknown::default();
        self.container(MAP, |reader| {
            let name = reader.name()?;
            member(reader, name, &mut unknown)
        })
    }

    /// Milliseconds since 1970, with the tag of a timestamp.
    fn timestamp(&mut self) -> Option<f64> {
        (self.sized(TAG)? == TIMESTAMP_TAG).then_some(())?;
        let millis = self.sized(UNSIGNED)?;
        // Exact in 64 bits of floating point.
        (millis < 1 << 53).then(|| millis as f64 / 1000.0)
    }

    /// Skips the value of a member that a later service may send.
    fn skip_scalar(&mut self) -> Option<()> {
        match self.head()? {
            (UNSIGNED | NEGATIVE, Some(_)) => Some(()),
            (BYTES, Some(size)) => self.take(size).map(|_| ()),
            (TEXT, Some(size)) => from_utf8(self.take(size)?).ok().map(|_| ()),
            (SIMPLE, Some(20..=23)) => Some(()),
            _ => None,
        }
    }
}

/// The members that are skipped, of which a map must not have one twice.
#[derive(Default)]
struct Unknown<'a>(Vec<&'a [u8]>);

impl<'a> Unknown<'a> {
    fn skip(&mut self, name: &'a [u8], reader: &mut Reader<'a>) -> Option<()> {
        // More would take quadratic time.
        if self.0.len() >= 16 || self.0.contains(&name) || from_utf8(name).is_err() {
            return None;
        }
        self.0.push(name);
        reader.skip_scalar()
    }
}

/// Returns the page in a body; `None` if it has anything that is not expected.
pub fn parse(body: &[u8]) -> Option<Page<'_>> {
    let mut reader = Reader { body, at: 0 };
    let (mut rows, mut iterator, mut continuation) = (None, None, None);
    let (mut millis, mut children) = (None, None);
    reader.map(|reader, name, unknown| match name {
        b"Records" => {
            let found = rows_in(reader);
            set(&mut rows, found)
        }
        b"NextShardIterator" => set(&mut iterator, reader.optional_text()),
        b"ContinuationSequenceNumber" => set(&mut continuation, reader.optional_text()),
        b"MillisBehindLatest" if reader.is_null() => set(&mut millis, Some(None)),
        b"MillisBehindLatest" => {
            let lag = i64::try_from(reader.sized(UNSIGNED)?).ok()?;
            set(&mut millis, Some(Some(lag)))
        }
        // A shard ends once: the reference decodes its children.
        b"ChildShards" if reader.is_null() => set(&mut children, Some(())),
        b"ChildShards" => set(&mut children, reader.container(ARRAY, |_| None)),
        name => unknown.skip(name, reader),
    })?;
    (reader.at == body.len()).then_some(())?;
    Some(Page {
        rows: rows?,
        next_shard_iterator: iterator.flatten().map(Cow::Borrowed),
        continuation: continuation.flatten().map(Cow::Borrowed),
        millis_behind_latest: millis.flatten(),
    })
}

fn rows_in<'a>(reader: &mut Reader<'a>) -> Option<Vec<Row<'a>>> {
    let mut rows = Vec::new();
    if reader.is_null() {
        return Some(rows);
    }
    reader.container(ARRAY, |reader| {
        rows.push(row(reader)?);
        Some(())
    })?;
    Some(rows)
}

fn row<'a>(reader: &mut Reader<'a>) -> Option<Row<'a>> {
    let mut parts = RowParts::default();
    reader.map(|reader, name, unknown| match name {
        b"Data" => set(&mut parts.payload, reader.bytes().map(Payload::Bytes)),
        b"PartitionKey" => {
            let key = reader.optional_text()?;
            set(&mut parts.partition_key, Some(key.map(Cow::Borrowed)))
        }
        b"SequenceNumber" => set(&mut parts.sequence_number, reader.text()),
        b"ApproximateArrivalTimestamp" => set(&mut parts.arrival, reader.timestamp()),
        b"EncryptionType" => set(&mut parts.encryption_type, reader.optional_text()),
        name => unknown.skip(name, reader),
    })?;
    parts.row()
}

/// Returns the shards and sequence numbers in an answer of PutRecords that refuses no record.
pub fn places(body: &[u8]) -> Option<Vec<(&str, &str)>> {
    let mut reader = Reader { body, at: 0 };
    let mut found = None;
    reader.map(|reader, name, unknown| match name {
        b"Records" => {
            let places = set(&mut found, Some(Vec::new())).and(found.as_mut())?;
            reader.container(ARRAY, |reader| {
                places.push(place(reader)?);
                Some(())
            })
        }
        name => unknown.skip(name, reader),
    })?;
    (reader.at == body.len()).then_some(found)?
}

fn place<'a>(reader: &mut Reader<'a>) -> Option<(&'a str, &'a str)> {
    let (mut shard, mut number, mut code) = (None, None, None);
    reader.map(|reader, name, unknown| match name {
        b"ShardId" => set(&mut shard, reader.text()),
        b"SequenceNumber" => set(&mut number, reader.text()),
        b"ErrorCode" => set(&mut code, reader.is_null().then_some(())),
        name => unknown.skip(name, reader),
    })?;
    Some((shard?, number?)).filter(|(shard, number)| !shard.is_empty() && !number.is_empty())
}

fn put(room: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let size = bytes.len() as u64;
    let (low, width) = match size {
        0..=23 => (size as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    room.push(kind << 5 | low);
    room.extend_from_slice(&size.to_be_bytes()[8 - width..]);
    room.extend_from_slice(bytes);
}

/// Returns the body of a PutRecords call, with one more member. Its containers have no lengths.
pub fn request(rows: &[(&[u8], &str)], name: &str, value: &str) -> Vec<u8> {
    let bytes: usize = rows.iter().map(|(data, key)| data.len() + key.len() + 40).sum();
    let mut room = Vec::with_capacity(bytes + 300);
    room.extend_from_slice(b"\xbf\x67Records\x9f");
    for (data, key) in rows {
        room.extend_from_slice(b"\xbf\x64Data");
        put(&mut room, BYTES, data);
        room.extend_from_slice(b"\x6cPartitionKey");
        put(&mut room, TEXT, key.as_bytes());
        room.push(BREAK);
    }
    room.push(BREAK);
    put(&mut room, TEXT, name.as_bytes());
    put(&mut room, TEXT, value.as_bytes());
    room.push(BREAK);
    room
}
