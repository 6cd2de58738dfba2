//! The engine's own work in a transfer: the path does nothing.
#![allow(clippy::unwrap_used, missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use moonrail_benches::OverNothing;

fn own_cost(c: &mut Criterion) {
    let over = OverNothing::start().unwrap();
    let mut group = c.benchmark_group("transfer over nothing");
    for count in [1, 128, 4096, 20_000] {
        let request = over.request(count);
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| over.engine.transfer(&request).unwrap());
        });
    }
}

criterion_group!(benches, own_cost);
criterion_main!(benches);
