//! Memory that is registered but not mapped, on either side. In a binary of its own, so that no other test's memory comes
//! to lie there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::{MemoryRange, RegionOptions, RegionTable, Want};
use moonrail_shm::{ShmPath, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Code, Control, Dialect, Entry, Failure, Opcode, Path, Target, Work};

/// A table with a region whose memory is gone, and that region.
fn hollow() -> (Arc<RegionTable>, MemoryRange) {
    let (owner, table) = (Side::new(), Arc::new(RegionTable::new()));
    // Large, so that nothing small is mapped there soon.
    let range = owner.range(1 << 30);
    table.register(range, RegionOptions::default()).unwrap();
    (table, range)
}

fn run(
    table: &Arc<RegionTable>,
    near: &RegionTable,
    opcode: Opcode,
    entries: &[Entry],
) -> Result<(), Failure> {
    let server = ShmServer::start(Arc::clone(table), 1).unwrap();
    let target = Target {
        name: "far".to_owned(),
        addresses: Vec::new(),
        dialect: Dialect::MooncakeV2,
        tls: None,
        generation: 1,
        same_host: Some(server.contact().to_string()),
    };
    let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
    let holds = near.hold_all(entries.iter().map(|entry| (entry.local, entry.len)), want).unwrap();
    let limit = Duration::from_secs(5);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    ShmPath::new().execute(&target, &Work { opcode, entries, holds: &holds }, &control)
}

#[test]
fn the_side_at_fault_is_named_with_its_descriptor() {
    let sound = Side::new();
    let good = sound.range(1 << 20);
    let far = Side::new();
    let buffer = far.range(1 << 20);
    // Last, so that nothing of the others is mapped where its memory was.
    let (hollow, gone) = hollow();
    for opcode in [Opcode::Write, Opcode::Read] {
        // Our own side; the descriptor before it is applied.
        hollow.register(good, RegionOptions::default()).unwrap();
        let local = |local: MemoryRange| Entry { local: local.addr(), remote: buffer.addr(), len: 4096 };
        let failure = run(&far.regions, &hollow, opcode, &[local(good), local(gone)]).unwrap_err();
        assert_eq!((failure.error.code(), failure.error.index()), (Code::MemoryFault, Some(1)), "{failure}");
        assert_eq!(failure.untouched, opcode == Opcode::Read);
        // The far side.
        let remote = |remote: MemoryRange| Entry { local: good.addr(), remote: remote.addr(), len: 4096 };
        // An empty descriptor between them, wherever it points, is not to blame.
        let empty = Entry { local: 0, remote: 0, len: 0 };
        let entries = [remote(good), empty, remote(gone)];
        let failure = run(&hollow, &sound.regions, opcode, &entries).unwrap_err();
        assert_eq!(
            (failure.error.code(), failure.error.index()),
            (Code::RemoteRefused, Some(2)),
            "{failure}"
        );
        assert!(failure.to_string().contains("not mapped"), "{failure}");
        let failure = run(&hollow, &sound.regions, opcode, &[remote(gone)]).unwrap_err();
        assert!(failure.untouched && !failure.stale, "{failure}");
        hollow.unregister(good.addr(), Duration::ZERO).unwrap();
    }
}
