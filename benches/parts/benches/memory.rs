//! The region table: look-up, holds, registration.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use moonrail_benches::Pages;
use moonrail_benches::pages::PAGE;
use moonrail_memory::{RegionTable, Want};

const BATCH: u64 = 4096;
const MANY: u64 = 10_000;

fn holds(c: &mut Criterion) {
    let (pages, table) = (Pages::kv_cache(), RegionTable::new());
    table.register_batch(pages.regions()).unwrap();
    let mut index = 0;
    c.bench_function("look up and hold one range among 160 regions", |b| {
        b.iter(|| {
            index = (index + 1009) % BATCH;
            table.hold(black_box(pages.page(index, BATCH)), PAGE, Want::Read).unwrap()
        });
    });
    let ranges: Vec<(u64, u64)> = (0..BATCH).map(|index| (pages.page(index, BATCH), PAGE)).collect();
    let mut group = c.benchmark_group("hold all of a batch");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("4096 ranges in 160 regions", |b| {
        b.iter(|| table.hold_all(ranges.iter().copied(), Want::Read).unwrap());
    });
}

fn registration(c: &mut Criterion) {
    let pages = Pages::new(MANY, PAGE);
    let starts: Vec<u64> = pages.regions().iter().map(|(range, _)| range.addr()).collect();
    let mut group = c.benchmark_group("registration");
    group.throughput(Throughput::Elements(MANY)).sample_size(20);
    group.bench_function("register 10000", |b| {
        b.iter_batched(
            || (RegionTable::new(), pages.regions()),
            |(table, regions)| {
                table.register_batch(regions).unwrap();
                table
            },
            BatchSize::LargeInput,
        );
    });
    let registered = || {
        let table = RegionTable::new();
        table.register_batch(pages.regions()).unwrap();
        table
    };
    group.bench_function("unregister 10000", |b| {
        b.iter_batched(
            registered,
            |table| {
                table.unregister_batch(&starts, Duration::from_secs(1)).unwrap();
                table
            },
            BatchSize::LargeInput,
        );
    });
}

criterion_group!(benches, holds, registration);
criterion_main!(benches);
