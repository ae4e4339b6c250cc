//! Kinesis' JSON, as far as answers with records use it. `None` stands for everything else.

use std::borrow::Cow;
use std::str::from_utf8;

use memchr::memchr2;

use crate::page::{set, Page, Payload, Row, RowParts};

/// Deeper nesting of a member that is skipped is left to the reference.
const DEEPEST: usize = 16;

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.body.get(self.at) {
            self.at += 1;
        }
        self.body.get(self.at).copied()
    }

    fn next_is(&mut self, expected: u8) -> bool {
        let is_next = self.peek() == Some(expected);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, expected: u8) -> Option<()> {
        self.next_is(expected).then_some(())
    }

    fn word(&mut self, word: &[u8]) -> bool {
        let is_next = self.peek().is_some() && self.body[self.at..].starts_with(word);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    /// The bytes of a string without escapes, which may be anything but quotes and backslashes.
    fn raw(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = &self.body[self.at..];
        let end = memchr2(b'"', b'\\', rest)?;
        (rest[end] == b'"').then_some(())?;
        self.at += end + 1;
        Some(&rest[..end])
    }

    fn plain(&mut self) -> Option<&'a str> {
        let raw = self.raw()?;
        is_text(raw).then_some(())?;
        from_utf8(raw).ok()
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let mut unescaped: Option<String> = None;
        loop {
            let rest = &self.body[self.at..];
            let end = memchr2(b'"', b'\\', rest)?;
            let piece = &rest[..end];
            is_text(piece).then_some(())?;
            let piece = from_utf8(piece).ok()?;
            self.at += end + 1;
            if rest[end] == b'"' {
                return Some(match unescaped {
                    None => Cow::Borrowed(piece),
                    Some(mut text) => {
                        text.push_str(piece);
                        Cow::Owned(text)
                    }
                });
            }
            let text = unescaped.get_or_insert_with(String::new);
            text.push_str(piece);
            text.push(self.escape()?);
        }
    }

    /// The character of an escape whose backslash has been read.
    fn escape(&mut self) -> Option<char> {
        let kind = *self.body.get(self.at)?;
        self.at += 1;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.code_unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                let rest = self.body.get(self.at..self.at + 2)?;
                (rest == b"\\u").then_some(())?;
                self.at += 2;
                let second = self.code_unit()?;
                (0xdc00..0xe000).contains(&second).then_some(())?;
                return char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
            }
            _ => return None,
        })
    }

    fn code_unit(&mut self) -> Option<u32> {
        let digits = self.body.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |sum, &one| Some(sum << 4 | char::from(one).to_digit(16)?))
    }

    fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.word(b"null") {
            return Some(None);
        }
        read(self).map(Some)
    }

    fn digits(&mut self) -> Option<usize> {
        let count = self.body[self.at..].iter().take_while(|one| one.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(count)
    }

    /// A number that is not negative, and whether it is whole.
    fn number(&mut self) -> Option<(&'a str, bool)> {
        self.peek()?;
        let start = self.at;
        let has_leading_zero = self.body[start] == b'0';
        if self.digits()? > 1 && has_leading_zero {
            return None;
        }
        let whole_end = self.at;
        if self.body.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.body.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.body.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = from_utf8(&self.body[start..self.at]).ok()?;
        Some((text, self.at == whole_end))
    }

    fn seconds(&mut self) -> Option<f64> {
        let (text, is_whole) = self.number()?;
        // A whole number is exact: of more digits the reference makes another one.
        (!is_whole || text.len() <= 15).then_some(())?;
        text.parse().ok().filter(|seconds: &f64| seconds.is_finite())
    }

    fn millis(&mut self) -> Option<i64> {
        let (text, is_whole) = self.number()?;
        is_whole.then_some(())?;
        text.parse().ok()
    }

    /// Calls `member` with the name of each member of an object, whose value it reads.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.next_is(b'}') {
            return Some(());
        }
        loop {
            let name = self.plain()?;
            self.expect(b':')?;
            member(self, name)?;
            if self.next_is(b'}') {
                return Some(());
            }
            self.expect(b',')?;
        }
    }

    fn array(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.next_is(b']') {
            return Some(());
        }
        loop {
            item(self)?;
            if self.next_is(b']') {
                return Some(());
            }
            self.expect(b',')?;
        }
    }

    /// Skips the value of a member that a later service may send.
    fn skip(&mut self, depth: usize) -> Option<()> {
        (depth < DEEPEST).then_some(())?;
        match self.peek()? {
            b'{' => self.object(|reader, _| reader.skip(depth + 1)),
            b'[' => self.array(|reader| reader.skip(depth + 1)),
            b'"' => self.text().map(|_| ()),
            b't' => self.word(b"true").then_some(()),
            b'f' => self.word(b"false").then_some(()),
            b'n' => self.word(b"null").then_some(()),
            _ => self.seconds().map(|_| ()),
        }
    }
}

/// Returns whether bytes have no control characters, which JSON escapes.
fn is_text(bytes: &[u8]) -> bool {
    // Without a branch per byte, which a compiler turns into vector instructions.
    bytes.iter().fold(true, |sum, &one| sum & (one >= 0x20))
}

/// Returns the page in a body; `None` if it has anything that is not expected.
pub fn parse(body: &[u8]) -> Option<Page<'_>> {
    let mut reader = Reader { body, at: 0 };
    let (mut rows, mut iterator, mut continuation) = (None, None, None);
    let (mut millis, mut children) = (None, None);
    reader.object(|reader, name| match name {
        "Records" => {
            let found = rows_in(reader);
            set(&mut rows, found)
        }
        "NextShardIterator" => set(&mut iterator, reader.optional(Reader::text)),
        "ContinuationSequenceNumber" => set(&mut continuation, reader.optional(Reader::text)),
        "MillisBehindLatest" => set(&mut millis, reader.optional(Reader::millis)),
        // A shard ends once: the reference decodes its children.
        "ChildShards" => set(&mut children, reader.optional(|inner| inner.array(|_| None))),
        _ => reader.skip(0),
    })?;
    reader.peek().is_none().then_some(())?;
    Some(Page {
        rows: rows?,
        next_shard_iterator: iterator.flatten(),
        continuation: continuation.flatten(),
        millis_behind_latest: millis.flatten(),
    })
}

fn rows_in<'a>(reader: &mut Reader<'a>) -> Option<Vec<Row<'a>>> {
    let mut rows = Vec::new();
    if reader.word(b"null") {
        return Some(rows);
    }
    reader.array(|reader| {
        rows.push(row(reader)?);
        Some(())
    })?;
    Some(rows)
}

fn row<'a>(reader: &mut Reader<'a>) -> Option<Row<'a>> {
    let mut parts = RowParts::default();
    reader.object(|reader, name| match name {
        "Data" => set(&mut parts.payload, reader.raw().map(Payload::Base64)),
        "PartitionKey" => set(&mut parts.partition_key, reader.optional(Reader::text)),
        "SequenceNumber" => set(&mut parts.sequence_number, reader.plain()),
        "ApproximateArrivalTimestamp" => set(&mut parts.arrival, reader.seconds()),
        "EncryptionType" => set(&mut parts.encryption_type, reader.optional(Reader::plain)),
        _ => reader.skip(0),
    })?;
    parts.row()
}
