//! Which releases a descriptor comes from, as far as its fields tell.

use std::fmt;

/// A line of releases that write the same descriptor and serve data in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseLine {
    /// Moonrail, any release.
    Moonrail,
    /// Mooncake with `tcp_data_host`.
    V0_3_13,
    /// Mooncake with data protocol v2 and no `tcp_data_host`.
    V0_3_12,
    /// Mooncake with a data port and data protocol v1: up to 0.3.9 one request a connection, after that many.
    V1,
    /// Mooncake without `tcp_data_port`: data protocol v1 on the handshake port + 1.
    V0_3_4,
}

impl fmt::Display for ReleaseLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moonrail => "Moonrail",
            Self::V0_3_13 => "Mooncake 0.3.13 or later (data protocol v2)",
            Self::V0_3_12 => "Mooncake 0.3.12 (data protocol v2)",
            Self::V1 => "Mooncake 0.3.5–0.3.11 (data protocol v1)",
            Self::V0_3_4 => "Mooncake 0.3.4 or earlier (data protocol v1, handshake port + 1)",
        })
    }
}
