//! Small copies that wait for nothing: what they do, and when they leave it to the call that may wait.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use moonrail_memory::{HoldSet, Want};
use moonrail_shm::{ShmPath, ShmPeer, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::{Control, Dialect, Entry, Failure, Opcode, Target, Work};

struct Case {
    path: ShmPath,
    target: Target,
    peer: Arc<ShmPeer>,
    near: Side,
    far: Side,
    server: ShmServer,
}

impl Case {
    fn new() -> Self {
        let (path, far) = (ShmPath::new(), Side::new());
        let server = ShmServer::start(Arc::clone(&far.regions), 1).unwrap();
        let target = Target {
            name: "far".to_owned(),
            addresses: Vec::new(),
            dialect: Dialect::MooncakeV2,
            tls: None,
            generation: 1,
            same_host: Some(server.contact().to_string()),
        };
        let peer = path.peer(&target).unwrap();
        Self { path, target, peer, near: Side::new(), far, server }
    }

    fn held(&self, opcode: Opcode, entries: &[Entry]) -> HoldSet {
        let want = if opcode == Opcode::Read { Want::Write } else { Want::Read };
        self.near.regions.hold_all(entries.iter().map(|entry| (entry.local, entry.len)), want).unwrap()
    }

    fn at_once(&self, opcode: Opcode, entries: &[Entry]) -> Option<Result<(), Failure>> {
        let holds = self.held(opcode, entries);
        self.path.copy_at_once(&self.peer, &self.target, &Work { opcode, entries, holds: &holds })
    }

    fn in_time(&self, opcode: Opcode, entries: &[Entry]) -> Result<(), Failure> {
        let (holds, limit) = (self.held(opcode, entries), Duration::from_secs(5));
        let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
        self.path.execute_at(&self.peer, &self.target, &Work { opcode, entries, holds: &holds }, &control)
    }
}

#[test]
fn it_copies_once_the_target_and_its_regions_are_known() {
    let case = Case::new();
    let (local, remote) = (case.near.buffer(b"hello, there"), case.far.buffer(&[0; 12]));
    let entries = [
        Entry { local, remote, len: 5 },
        Entry { local: 0, remote: 0, len: 0 },
        Entry { local: local + 5, remote: remote + 6, len: 6 },
    ];
    assert!(case.at_once(Opcode::Write, &entries).is_none(), "there is no link yet");
    case.in_time(Opcode::Write, &entries[..1]).unwrap();
    case.at_once(Opcode::Write, &entries).unwrap().unwrap();
    assert_eq!(case.far.get(remote, 12), b"hello\0, ther");
    case.far.set(remote, b"good morning");
    case.at_once(Opcode::Read, &entries).unwrap().unwrap();
    assert_eq!(case.near.get(local, 12), b"good orninge");

    let another = case.far.buffer(&[0; 8]);
    let entry = [Entry { local, remote: another, len: 8 }];
    assert!(case.at_once(Opcode::Write, &entry).is_none(), "the region is not known yet");
    case.in_time(Opcode::Write, &entry).unwrap();
    case.at_once(Opcode::Write, &entry).unwrap().unwrap();
    assert!(case.at_once(Opcode::Write, &[]).is_none(), "nothing to move");
}

#[test]
fn it_leaves_failures_to_the_call_that_may_wait() {
    let case = Case::new();
    let (local, remote) = (case.near.buffer(&[1; 64]), case.far.buffer(&[2; 64]));
    let entry = |remote| [Entry { local, remote, len: 64 }];
    case.in_time(Opcode::Write, &entry(remote)).unwrap();
    assert!(case.at_once(Opcode::Write, &entry(remote + 1)).is_none(), "outside");
    case.far.free(remote);
    assert!(case.at_once(Opcode::Read, &entry(remote)).is_none(), "unregistered");
    assert!(case.in_time(Opcode::Read, &entry(remote)).is_err());
    assert!(case.at_once(Opcode::Read, &entry(remote)).is_none(), "unregistered, and known to be");
    let again = case.far.buffer(&[3; 64]);
    case.in_time(Opcode::Read, &entry(again)).unwrap();
    drop(case.server);
    let held = case.near.regions.hold_all([(local, 64)], Want::Write).unwrap();
    let work = Work { opcode: Opcode::Read, entries: &entry(again), holds: &held };
    assert!(case.path.copy_at_once(&case.peer, &case.target, &work).is_none(), "the target has closed");
    assert_eq!(case.near.get(local, 64), [3; 64]);
}
