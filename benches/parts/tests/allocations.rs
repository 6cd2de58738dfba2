//! A transfer allocates for the call, not for its descriptors. A test binary of its own: the counting allocator is the
//! whole program's, and it counts by thread.
#![allow(clippy::unwrap_used)]

use moonrail_benches::OverNothing;

fn allocations(over: &OverNothing, descriptors: u64) -> u64 {
    let request = over.request(descriptors);
    over.engine.transfer(&request).unwrap();
    allocation_counter::measure(|| over.engine.transfer(&request).unwrap()).count_total
}

#[test]
fn a_batch_allocates_nothing_per_descriptor() {
    let over = OverNothing::start().unwrap();
    // Both go through all 160 buffers: what is held is allocated for a buffer.
    let (few, many) = (allocations(&over, 1024), allocations(&over, 4096));
    assert_eq!(few, many);
    assert!(many <= 100, "{many} allocations for a batch to 160 buffers");
    let one = allocations(&over, 1);
    assert!(one <= 8, "{one} allocations for a call with one descriptor");
}
