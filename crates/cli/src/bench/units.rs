//! Units of throughput, as Mooncake's benchmark names them.

use std::time::Duration;

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Unit {
    #[value(name = "GB")]
    GigaBytes,
    #[value(name = "GiB")]
    GibiBytes,
    #[value(name = "Gb")]
    GigaBits,
    #[value(name = "MB")]
    MegaBytes,
    #[value(name = "MiB")]
    MebiBytes,
    #[value(name = "Mb")]
    MegaBits,
    #[value(name = "KB")]
    KiloBytes,
    #[value(name = "KiB")]
    KibiBytes,
    #[value(name = "Kb")]
    KiloBits,
}

impl Unit {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Unit::GigaBytes => "GB",
            Unit::GibiBytes => "GiB",
            Unit::GigaBits => "Gb",
            Unit::MegaBytes => "MB",
            Unit::MebiBytes => "MiB",
            Unit::MegaBits => "Mb",
            Unit::KiloBytes => "KB",
            Unit::KibiBytes => "KiB",
            Unit::KiloBits => "Kb",
        }
    }

    /// Units a second; 0 in no time.
    pub(super) fn rate(self, bytes: u64, time: Duration) -> f64 {
        if time.is_zero() { 0.0 } else { bytes as f64 / self.bytes() / time.as_secs_f64() }
    }

    fn bytes(self) -> f64 {
        match self {
            Unit::GigaBytes => 1e9,
            Unit::GibiBytes => 1_073_741_824.0,
            Unit::GigaBits => 1e9 / 8.0,
            Unit::MegaBytes => 1e6,
            Unit::MebiBytes => 1_048_576.0,
            Unit::MegaBits => 1e6 / 8.0,
            Unit::KiloBytes => 1e3,
            Unit::KibiBytes => 1024.0,
            Unit::KiloBits => 1e3 / 8.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_an_eighth_and_names_are_the_options() {
        let second = Duration::from_secs(1);
        assert!((Unit::GigaBits.rate(1_000_000_000, second) - 8.0).abs() < 1e-9);
        assert!((Unit::MebiBytes.rate(3 << 20, second) - 3.0).abs() < 1e-9);
        for unit in Unit::value_variants() {
            assert_eq!(
                unit.to_possible_value().map(|value| value.get_name().to_owned()).as_deref(),
                Some(unit.as_str())
            );
        }
    }
}
