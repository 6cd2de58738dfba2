//! What stands between the nodes' bytes and the network: nothing, checksums, or TLS.

use std::path::PathBuf;

use clap::ValueEnum;
use moonrail::{Allow, Config, TlsSource};
use serde::{Deserialize, Serialize};

use crate::authority::{Authority, Wish};

/// As the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    Clear,
    Checksum,
    Tls,
}

/// As a node is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Sealing {
    Clear,
    Checksum,
    Tls { cert: PathBuf, key: PathBuf, ca: Vec<PathBuf> },
}

/// Name in the one certificate that all nodes have: their addresses differ from run to run.
const NAME: &str = "node";

/// The sealing of a whole run, and the files that belong to it.
pub(crate) struct Sealed {
    pub sealing: Sealing,
    _authority: Option<Authority>,
}

impl Sealed {
    pub(crate) fn new(over: Over) -> Self {
        match over {
            Over::Clear => Self { sealing: Sealing::Clear, _authority: None },
            Over::Checksum => Self { sealing: Sealing::Checksum, _authority: None },
            Over::Tls => {
                let authority = Authority::new();
                let TlsSource { cert, key, ca, .. } =
                    authority.issue_as(NAME, &Wish { names: &[NAME], ..Wish::default() });
                Self { sealing: Sealing::Tls { cert, key, ca }, _authority: Some(authority) }
            }
        }
    }
}

impl Sealing {
    /// As the command line takes it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Checksum => "checksum",
            Self::Tls { .. } => "tls",
        }
    }

    pub(crate) fn configure(&self, config: &mut Config) {
        match self {
            Self::Clear => {}
            Self::Checksum => config.checksum = true,
            Self::Tls { cert, key, ca } => {
                config.tls = Some(TlsSource {
                    cert: cert.clone(),
                    key: key.clone(),
                    ca: ca.clone(),
                    pins: None,
                    name: Some(NAME.to_owned()),
                });
                // The Mooncake peers of the schedules know no TLS, and copies on one host have no use for it.
                config.allow = Allow { mooncake: true, same_host: true, ..Allow::default() };
            }
        }
    }
}
