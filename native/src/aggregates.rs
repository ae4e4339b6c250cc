//! The message of an aggregate, in protobuf, and hash keys. OpenSSL makes its checksum faster.

use std::collections::HashMap;
use std::str::from_utf8;

/// The magic bytes and the MD5 around a message.
const AROUND_MESSAGE: usize = 20;
const LONGEST_KEY: usize = 256;
const LONGEST_HASH_KEY: usize = 39;
/// The tags of protobuf: the number of a field and its wire type.
const KEYS: u8 = 0x0a;
const HASH_KEYS: u8 = 0x12;
const RECORDS: u8 = 0x1a;
const KEY_INDEX: u8 = 0x08;
const HASH_KEY_INDEX: u8 = 0x10;
const DATA: u8 = 0x1a;

/// A record inside an aggregate, whose keys are places in the tables.
#[derive(Debug, PartialEq)]
pub struct Inside<'a> {
    pub data: &'a [u8],
    pub key: usize,
    pub hash_key: Option<usize>,
}

#[derive(Debug, Default, PartialEq)]
pub struct Aggregate<'a> {
    pub keys: Vec<&'a str>,
    pub hash_keys: Vec<&'a str>,
    pub records: Vec<Inside<'a>>,
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn tag(&mut self) -> Option<u8> {
        let (&tag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(tag)
    }

    fn number(&mut self) -> Option<usize> {
        let mut value: u64 = 0;
        // A value of more than 63 bits is no place and no size.
        for shift in (0..63).step_by(7) {
            let byte = self.tag()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return usize::try_from(value).ok();
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let size = self.number()?;
        (size <= self.0.len()).then_some(())?;
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self, longest: usize) -> Option<&'a str> {
        let text = from_utf8(self.bytes()?).ok()?;
        (text.len() <= longest || text.chars().count() <= longest).then_some(text)
    }
}

/// The hash key of a partition key.
pub fn hash_key(partition_key: &str) -> u128 {
    u128::from_be_bytes(md5::compute(partition_key).0)
}

/// Returns the records in the message of an aggregate; `None` for what needs a closer look.
pub fn unpack(message: &[u8]) -> Option<Aggregate<'_>> {
    let mut found = Aggregate::default();
    let mut fields = Fields(message);
    while !fields.0.is_empty() {
        match fields.tag()? {
            KEYS => found.keys.push(fields.text(LONGEST_KEY)?),
            HASH_KEYS => found.hash_keys.push(fields.text(LONGEST_HASH_KEY)?),
            RECORDS => found.records.push(inside(fields.bytes()?)?),
            _ => return None,
        }
    }
    let (keys, hash_keys) = (found.keys.len(), found.hash_keys.len());
    let is_whole =
        |one: &Inside<'_>| one.key < keys && one.hash_key.map_or(true, |at| at < hash_keys);
    found.records.iter().all(is_whole).then_some(found)
}

fn inside(message: &[u8]) -> Option<Inside<'_>> {
    let mut fields = Fields(message);
    let (mut key, mut hash_key, mut data) = (None, None, None);
    while !fields.0.is_empty() {
        match fields.tag()? {
            KEY_INDEX if key.is_none() => key = Some(fields.number()?),
            HASH_KEY_INDEX if hash_key.is_none() => hash_key = Some(fields.number()?),
            DATA if data.is_none() => data = Some(fields.bytes()?),
            _ => return None,
        }
    }
    Some(Inside { data: data?, key: key?, hash_key })
}

fn number_size(number: usize) -> usize {
    let bits = (usize::BITS - number.leading_zeros()).max(1) as usize;
    (bits + 6) / 7
}

fn put_number(room: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        room.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    room.push(number as u8);
}

fn put_bytes(room: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    room.push(tag);
    put_number(room, bytes.len());
    room.extend_from_slice(bytes);
}

/// Packs the first of some records that have only data and keys.
///
/// Returns the message and how many records it has: at least one, and as many as fit.
pub fn pack(rows: &[(&[u8], &str)], max_bytes: usize) -> (Vec<u8>, usize) {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut indices = Vec::new();
    let mut size = AROUND_MESSAGE;
    for &(data, key) in rows {
        let known = places.len();
        let place = *places.entry(key).or_insert(known);
        let entry = if place == known { 1 + number_size(key.len()) + key.len() } else { 0 };
        let inside = inside_size(place, data.len());
        size += entry + 1 + number_size(inside) + inside;
        if !indices.is_empty() && size > max_bytes {
            if place == known {
                places.remove(key);
            }
            break;
        }
        indices.push(place);
    }
    if indices.len() < 2 {
        return (Vec::new(), indices.len());
    }
    let mut table: Vec<&str> = vec![""; places.len()];
    for (key, place) in places {
        table[place] = key;
    }
    let mut room = Vec::with_capacity(size);
    for key in table {
        put_bytes(&mut room, KEYS, key.as_bytes());
    }
    for (&(data, _), &place) in rows.iter().zip(&indices) {
        room.push(RECORDS);
        put_number(&mut room, inside_size(place, data.len()));
        room.push(KEY_INDEX);
        put_number(&mut room, place);
        put_bytes(&mut room, DATA, data);
    }
    (room, indices.len())
}

fn inside_size(place: usize, size: usize) -> usize {
    2 + number_size(place) + number_size(size) + size
}
