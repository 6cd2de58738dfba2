//! The conformance suite over real sockets: our client against our server, data protocol v2, and rail with and without a key, TLS and checksums.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../../access/tests/support/authority.rs"]
mod authority;

use std::net::TcpListener;
use std::sync::Arc;

use moonrail_access::{AccessControl, Allow, KeySource, Tls};
use moonrail_tcp::{ServerOptions, TcpPath, TcpServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::testkit::conformance::Subject;
use moonrail_transport::{Dialect, Target};

const EPOCH: u64 = 77;

fn subject_with(lanes: usize, dialect: Dialect) -> Subject {
    subject(lanes, dialect, None, None)
}

/// With a shared key on both sides.
fn guarded() -> Subject {
    let key = KeySource::text("the test", "the shared key of these tests");
    let access = Arc::new(AccessControl::open(key, Allow::default()).unwrap());
    subject(4, Dialect::Rail { epoch: EPOCH }, Some(access), None)
}

/// In TLS.
fn sealed(lanes: usize) -> Subject {
    let authority = authority::Authority::new();
    let tls = Tls::open(authority.issue("both"), Allow::default()).unwrap();
    subject(lanes, Dialect::Rail { epoch: EPOCH }, None, Some((Arc::new(tls), authority)))
}

fn subject(
    lanes: usize,
    dialect: Dialect,
    access: Option<Arc<AccessControl>>,
    tls: Option<(Arc<Tls>, authority::Authority)>,
) -> Subject {
    let (tls, authority) = tls.unzip();
    let far = Arc::new(Side::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TcpServer::start(
        listener,
        Arc::clone(&far.regions),
        ServerOptions { epoch: EPOCH, access: access.clone(), tls: tls.clone(), ..ServerOptions::default() },
    )
    .unwrap();
    Subject {
        path: Box::new(TcpPath::new(lanes).guarded(access).sealed(tls.clone())),
        target: Target {
            name: "far".to_owned(),
            addresses: vec![server.address()],
            dialect,
            tls: tls.map(|_| "127.0.0.1".into()),
            generation: 1,
            same_host: None,
        },
        far,
        keep: Box::new((server, authority)),
        refreshed: 0.into(),
    }
}

mod mooncake_v2 {
    moonrail_transport::conformance_suite!(|| super::subject_with(4, super::Dialect::MooncakeV2));
}

mod mooncake_v2_on_one_lane {
    moonrail_transport::conformance_suite!(|| super::subject_with(1, super::Dialect::MooncakeV2));
}

mod rail {
    moonrail_transport::conformance_suite!(|| super::subject_with(
        4,
        super::Dialect::Rail { epoch: super::EPOCH }
    ));
}

mod rail_on_one_lane {
    moonrail_transport::conformance_suite!(|| super::subject_with(
        1,
        super::Dialect::Rail { epoch: super::EPOCH }
    ));
}

mod rail_with_a_key {
    moonrail_transport::conformance_suite!(super::guarded);
}

mod rail_in_tls {
    moonrail_transport::conformance_suite!(|| super::sealed(4));
}

mod rail_in_tls_on_one_lane {
    moonrail_transport::conformance_suite!(|| super::sealed(1));
}

mod rail_with_checksums {
    moonrail_transport::conformance_suite!(|| {
        let plain = super::subject_with(4, super::Dialect::Rail { epoch: super::EPOCH });
        super::Subject { path: Box::new(super::TcpPath::new(4).checking(true)), ..plain }
    });
}
