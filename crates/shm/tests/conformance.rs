//! The conformance suite over both ways of copying, with both ends in this process.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use moonrail_shm::{ShmPath, ShmServer};
use moonrail_transport::testkit::Side;
use moonrail_transport::testkit::conformance::Subject;
use moonrail_transport::{Dialect, Target};

fn subject(far: Side) -> Subject {
    let far = Arc::new(far);
    let server = ShmServer::start(Arc::clone(&far.regions), 1).unwrap();
    Subject {
        path: Box::new(ShmPath::new()),
        target: Target {
            name: "far".to_owned(),
            addresses: Vec::new(),
            dialect: Dialect::MooncakeV2,
            tls: None,
            generation: 1,
            same_host: Some(server.contact().to_string()),
        },
        far,
        keep: Box::new(server),
        refreshed: 0.into(),
    }
}

/// By the kernel: the far side's memory cannot be mapped.
mod across {
    use super::*;

    moonrail_transport::conformance_suite!(|| subject(Side::private()));
}

/// Through memory that both sides have mapped.
mod mapped {
    use super::*;

    moonrail_transport::conformance_suite!(|| subject(Side::new()));
}
