//! This engine's own segment descriptor.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use moonrail_memory::RegionTable;
use moonrail_wire::handshake::DEFAULT_MAX_LEN;
use moonrail_wire::rail;
use moonrail_wire::segment::{Buffer, Extension, NamedBuffer, PROTOCOL_TCP, RailOffer, SegmentDescriptor};
use parking_lot::Mutex;
use tracing::warn;

/// What does not change while the engine lives.
pub(crate) struct OwnDescriptor {
    pub name: String,
    pub data_host: String,
    pub data_port: u16,
    pub epoch: u64,
    /// Feature bits of its rail lanes.
    features: u32,
    /// How processes of this host reach the memory, if they may.
    same_host: Option<String>,
    refuses_v1: bool,
    /// Where it tells its figures.
    metrics: Option<String>,
    regions: Arc<RegionTable>,
    /// The JSON of the last table version asked for.
    rendered: Mutex<Option<(u64, Arc<[u8]>)>>,
}

impl OwnDescriptor {
    pub(crate) fn new(
        name: String,
        (data_host, data_port): (String, u16),
        epoch: u64,
        features: u32,
        same_host: Option<String>,
        regions: Arc<RegionTable>,
    ) -> Self {
        let rendered = Mutex::new(None);
        let (refuses_v1, metrics) = (false, None);
        Self {
            name,
            data_host,
            data_port,
            epoch,
            features,
            same_host,
            refuses_v1,
            metrics,
            regions,
            rendered,
        }
    }

    /// Tells where the figures are.
    pub(crate) fn telling_metrics(self, metrics: Option<String>) -> Self {
        Self { metrics, ..self }
    }

    /// Tells peers that no client of data protocol v1 is let in.
    pub(crate) fn refusing_v1(self, refuses_v1: bool) -> Self {
        Self { refuses_v1, ..self }
    }

    /// With every registered buffer, in order of registration.
    pub(crate) fn full(&self) -> SegmentDescriptor {
        let mut descriptor = self.introduction();
        let mut names = Vec::new();
        for region in self.regions.snapshot() {
            if let Some(name) = &region.name {
                names.push(NamedBuffer { name: name.to_string(), addr: region.addr, length: region.len });
            }
            descriptor.buffers.push(Buffer {
                name: self.name.clone(),
                addr: region.addr,
                length: region.len,
            });
        }
        if let Some(extension) = &mut descriptor.moonrail {
            extension.names = names;
        }
        descriptor
    }

    /// Without buffers: what is shown to a peer whose descriptor is asked for. No peer reads our buffers there,
    /// and many of them would exceed what genuine peers take.
    pub(crate) fn introduction(&self) -> SegmentDescriptor {
        SegmentDescriptor {
            name: self.name.clone(),
            protocol: PROTOCOL_TCP.to_owned(),
            tcp_data_port: self.data_port,
            tcp_data_host: Some(self.data_host.clone()).filter(|host| !host.is_empty()),
            tcp_proto_version: 2,
            timestamp: timestamp(SystemTime::now()),
            rdma_server_name: Some(String::new()),
            buffers: Vec::new(),
            moonrail: Some(Extension {
                release: crate::RELEASE.to_owned(),
                epoch: self.epoch,
                names: Vec::new(),
                rail: Some(RailOffer { features: self.features, max: rail::VERSION, min: rail::VERSION }),
                same_host: self.same_host.clone(),
                metrics: self.metrics.clone(),
                refuses_v1: self.refuses_v1,
            }),
        }
    }

    /// The JSON of [`OwnDescriptor::full`], made anew only when a registration changed.
    pub(crate) fn json(&self) -> Arc<[u8]> {
        let mut rendered = self.rendered.lock();
        // Read before the snapshot: a change in between only makes the next caller render again.
        let version = self.regions.version();
        if let Some((of, json)) = &*rendered
            && *of == version
        {
            return Arc::clone(json);
        }
        let json: Arc<[u8]> = self.full().to_json().into();
        let was_larger = rendered.as_ref().is_some_and(|(_, json)| json.len() >= DEFAULT_MAX_LEN);
        if json.len() >= DEFAULT_MAX_LEN && !was_larger {
            warn!(
                "the segment descriptor is {} bytes long; genuine Mooncake peers take {DEFAULT_MAX_LEN} unless they set \
                 MC_HANDSHAKE_MAX_LENGTH: register fewer, larger buffers",
                json.len()
            );
        }
        *rendered = Some((version, Arc::clone(&json)));
        json
    }
}

/// `YYYY-MM-DD HH:MM:SS.ffffff` in UTC (informational on the wire).
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:06}", since.subsec_micros())
}

/// Days since 1970-01-01 as a date of the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timestamps_are_calendar_dates() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::new(seconds, 611_678_000));
        assert_eq!(at(0), "1970-01-01 00:00:00.611678");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59.611678");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.611678");
        assert_eq!(at(1_796_078_265), "2026-11-30 22:37:45.611678");
    }
}
