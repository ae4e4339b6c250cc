//! Feeds arbitrary bytes to all parsers: none may panic, read beyond the bytes, or need much memory.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../src/aggregates.rs"]
mod aggregates;
#[path = "../src/cbor.rs"]
mod cbor;
#[path = "../src/json.rs"]
mod json;
#[path = "../src/page.rs"]
mod page;

fuzz_target!(|data: &[u8]| {
    for parsed in [cbor::parse(data), json::parse(data)] {
        for row in parsed.iter().flat_map(|page| &page.rows) {
            if let Some(size) = row.payload.size() {
                let _ = row.payload.write(&mut vec![0; size]);
            }
        }
    }
    let _ = cbor::places(data);
    if let Some(found) = aggregates::unpack(data) {
        let rows: Vec<_> =
            found.records.iter().map(|one| (one.data, found.keys[one.key])).collect();
        let (packed, count) = aggregates::pack(&rows, data.len() / 2);
        if count > 1 {
            let again = aggregates::unpack(&packed).expect("an aggregate");
            assert!(again
                .records
                .iter()
                .map(|one| one.data)
                .eq(rows[..count].iter().map(|one| one.0)));
        }
    }
});
