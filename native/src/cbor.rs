//! Kinesis' CBOR, as far as answers with records use it. `None` stands for everything else.

use std::borrow::Cow;
use std::str::from_utf8;

use crate::page::{set, Page, Payload, Row, RowParts};

const TIMESTAMP_TAG: u64 = 1;
const BREAK: u8 = 0xff;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Unsigned,
    Negative,
    Bytes,
    Text,
    Array,
    Map,
    Tag,
    Simple,
}

const KINDS: [Kind; 8] = [
    Kind::Unsigned,
    Kind::Negative,
    Kind::Bytes,
    Kind::Text,
    Kind::Array,
    Kind::Map,
    Kind::Tag,
    Kind::Simple,
];

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

/// How many items follow; an indefinite container ends with a break.
enum Count {
    Items(u64),
    UntilBreak,
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
    fn head(&mut self) -> Option<(Kind, Option<u64>)> {
        let byte = self.byte()?;
        let kind = KINDS[usize::from(byte >> 5)];
        let argument = match byte & 31 {
            low @ 0..=23 => Some(u64::from(low)),
            24 => Some(u64::from(self.byte()?)),
            25 => Some(u64::from(u16::from_be_bytes(self.array()?))),
            26 => Some(u64::from(u32::from_be_bytes(self.array()?))),
            27 => Some(u64::from_be_bytes(self.array()?)),
            31 => None,
            _ => return None,
        };
        Some((kind, argument))
    }

    fn sized(&mut self, expected: Kind) -> Option<u64> {
        match self.head()? {
            (kind, Some(argument)) if kind == expected => Some(argument),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = self.sized(Kind::Bytes)?;
        self.take(size)
    }

    fn text(&mut self) -> Option<&'a str> {
        from_utf8(self.name()?).ok()
    }

    /// The bytes of a text: those of a known name are UTF-8.
    fn name(&mut self) -> Option<&'a [u8]> {
        let size = self.sized(Kind::Text)?;
        self.take(size)
    }

    fn is_null(&mut self) -> bool {
        let is_null = self.body.get(self.at) == Some(&0xf6);
        self.at += usize::from(is_null);
        is_null
    }

    fn optional_text(&mut self) -> Option<Option<&'a str>> {
        if self.is_null() {
            return Some(None);
        }
        self.text().map(Some)
    }

    fn container(&mut self, expected: Kind) -> Option<Count> {
        let (kind, argument) = self.head()?;
        (kind == expected).then(|| argument.map_or(Count::UntilBreak, Count::Items))
    }

    fn has_more(&mut self, count: &mut Count) -> Option<bool> {
        match count {
            Count::Items(0) => Some(false),
            Count::Items(left) => {
                *left -= 1;
                Some(true)
            }
            Count::UntilBreak => {
                let ends = *self.body.get(self.at)? == BREAK;
                self.at += usize::from(ends);
                Some(!ends)
            }
        }
    }

    /// Milliseconds since 1970, with the tag of a timestamp.
    fn timestamp(&mut self) -> Option<f64> {
        (self.sized(Kind::Tag)? == TIMESTAMP_TAG).then_some(())?;
        let millis = self.sized(Kind::Unsigned)?;
        // Exact in 64 bits of floating point.
        (millis < 1 << 53).then(|| millis as f64 / 1000.0)
    }

    /// Skips the value of a member that a later service may send.
    fn skip_scalar(&mut self) -> Option<()> {
        match self.head()? {
            (Kind::Unsigned | Kind::Negative, Some(_)) => Some(()),
            (Kind::Bytes, Some(size)) => self.take(size).map(|_| ()),
            (Kind::Text, Some(size)) => from_utf8(self.take(size)?).ok().map(|_| ()),
            (Kind::Simple, Some(20..=23)) => Some(()),
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
    let mut members = reader.container(Kind::Map)?;
    let mut unknown = Unknown::default();
    let (mut rows, mut iterator, mut continuation) = (None, None, None);
    let (mut millis, mut children) = (None, None);
    while reader.has_more(&mut members)? {
        match reader.name()? {
            b"Records" => {
                let found = rows_in(&mut reader);
                set(&mut rows, found)?;
            }
            b"NextShardIterator" => set(&mut iterator, reader.optional_text())?,
            b"ContinuationSequenceNumber" => set(&mut continuation, reader.optional_text())?,
            b"MillisBehindLatest" if reader.is_null() => set(&mut millis, Some(None))?,
            b"MillisBehindLatest" => {
                let lag = i64::try_from(reader.sized(Kind::Unsigned)?).ok()?;
                set(&mut millis, Some(Some(lag)))?;
            }
            b"ChildShards" => {
                // A shard ends once: the reference decodes its children.
                let is_empty = reader.is_null() || no_items(&mut reader)?;
                set(&mut children, is_empty.then_some(()))?;
            }
            name => unknown.skip(name, &mut reader)?,
        }
    }
    (reader.at == body.len()).then_some(())?;
    Some(Page {
        rows: rows?,
        next_shard_iterator: iterator.flatten().map(Cow::Borrowed),
        continuation: continuation.flatten().map(Cow::Borrowed),
        millis_behind_latest: millis.flatten(),
    })
}

fn no_items(reader: &mut Reader<'_>) -> Option<bool> {
    let mut items = reader.container(Kind::Array)?;
    reader.has_more(&mut items).map(|more| !more)
}

fn rows_in<'a>(reader: &mut Reader<'a>) -> Option<Vec<Row<'a>>> {
    let mut rows = Vec::new();
    if reader.is_null() {
        return Some(rows);
    }
    let mut items = reader.container(Kind::Array)?;
    while reader.has_more(&mut items)? {
        rows.push(row(reader)?);
    }
    Some(rows)
}

fn row<'a>(reader: &mut Reader<'a>) -> Option<Row<'a>> {
    let mut members = reader.container(Kind::Map)?;
    let mut parts = RowParts::default();
    let mut unknown = Unknown::default();
    while reader.has_more(&mut members)? {
        match reader.name()? {
            b"Data" => set(&mut parts.payload, reader.bytes().map(Payload::Bytes))?,
            b"PartitionKey" => {
                let key = reader.optional_text()?;
                set(&mut parts.partition_key, Some(key.map(Cow::Borrowed)))?;
            }
            b"SequenceNumber" => set(&mut parts.sequence_number, reader.text())?,
            b"ApproximateArrivalTimestamp" => set(&mut parts.arrival, reader.timestamp())?,
            b"EncryptionType" => set(&mut parts.encryption_type, reader.optional_text())?,
            name => unknown.skip(name, reader)?,
        }
    }
    parts.row()
}
