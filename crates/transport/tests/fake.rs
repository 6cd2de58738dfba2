//! The conformance suite itself, on the in-memory path.
#![allow(missing_docs)]

use std::sync::Arc;

use moonrail_transport::testkit::conformance::Subject;
use moonrail_transport::testkit::{FakePath, Side};
use moonrail_transport::{Dialect, Target};

fn subject() -> Subject {
    let far = Arc::new(Side::new());
    Subject {
        path: Box::new(FakePath::new(Arc::clone(&far.regions))),
        far,
        target: Target {
            name: "far".to_owned(),
            addresses: Vec::new(),
            dialect: Dialect::MooncakeV2,
            tls: None,
            generation: 1,
            same_host: None,
        },
        keep: Box::new(()),
        refreshed: 0.into(),
    }
}

moonrail_transport::conformance_suite!(subject);

#[test]
fn faults_fail_as_told() {
    use moonrail_transport::testkit::Faults;
    use moonrail_transport::{Code, Control, Entry, Opcode, Path, Work};
    use std::time::Duration;

    let (near, far) = (Side::new(), Side::new());
    let path = FakePath::new(Arc::clone(&far.regions));
    let target = subject().target;
    let (local, remote) = (near.buffer(&[1; 64]), far.buffer(&[0; 64]));
    let entries = [0, 32].map(|at| Entry { local: local + at, remote: remote + at, len: 32 });
    let ranges = entries.iter().map(|entry| (entry.local, entry.len));
    let holds = near.regions.hold_all(ranges, moonrail_memory::Want::Read).expect("registered");
    let work = Work { opcode: Opcode::Write, entries: &entries, holds: &holds };
    let limit = Duration::from_millis(50);
    let control = Control { deadline: None, connect: limit, progress: limit, stop: &|| None };
    let outcome = |faults| {
        path.set_faults(faults);
        path.execute(&target, &work, &control).map_err(|failure| (failure.error.code(), failure.untouched))
    };
    assert_eq!(outcome(Faults { stall: true, ..Faults::default() }), Err((Code::PeerTimeout, true)));
    assert_eq!(outcome(Faults { stale_first: 1, ..Faults::default() }), Err((Code::PeerGone, true)));
    assert_eq!(outcome(Faults { gone_at: Some(1), ..Faults::default() }), Err((Code::PeerGone, false)));
    assert_eq!(far.get(remote, 64), [[1; 32], [0; 32]].concat());
    assert_eq!(outcome(Faults::default()), Ok(()));
    assert_eq!((far.get(remote, 64), path.calls()), (vec![1; 64], 4));
}
