//! Feeds arbitrary bytes to all parsers: none may panic, read beyond the bytes, or need much memory.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../src/aggregates.rs"]
#[allow(dead_code)]
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
    let _ = aggregates::unpack(data);
    // With a checksum that fits.
    let sealed = [aggregates::MAGIC, data, &md5::compute(data).0].concat();
    if let Some(found) = aggregates::unpack(&sealed) {
        let keys: Vec<&str> = found.records.iter().map(|one| found.keys[one.key]).collect();
        let payloads: Vec<&[u8]> = found.records.iter().map(|one| one.data).collect();
        let (packed, count) = aggregates::pack(&payloads, &keys, data.len() / 2, 100);
        if count > 1 {
            let again = aggregates::unpack(&packed).expect("an aggregate");
            assert!(again.records.iter().map(|one| one.data).eq(payloads[..count].iter().copied()));
        }
    }
});
