//! The environment variables of genuine Mooncake that make sense here, and Moonrail's own.
//!
//! Owns the table of docs/environment.md. A value that cannot be read is an error naming the variable: a
//! setting that is silently ignored is found in production.

use std::env;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use moonrail_access::{KeySource, TlsSource, UnknownName};
use moonrail_transport::{Code, Error, Retry, Stage};

use crate::config::{BadPaths, Config, V1Clients};

/// Ports that the kernel hands out by itself; a range that ends in them would collide.
const EPHEMERAL: RangeInclusive<u16> = 32768..=60999;

impl Config {
    /// Applies the process's environment on top of these values.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] naming the variable, its value and what it takes.
    pub fn with_environment(mut self) -> Result<Self, Error> {
        if let Some(range) = ports()? {
            self.ports = range;
        }
        if let Some(lanes) = number::<usize>("MC_TCP_LANES_PER_PEER", 1..=16)?
            .or(number("MC_TCP_MAX_CONNECTIONS_PER_PEER", 1..=16)?)
        {
            self.lanes_per_peer = lanes;
        }
        if let Some(seconds) = number::<u64>("MC_HANDSHAKE_CONNECT_TIMEOUT", 1..=3599)? {
            self.timeouts.connect = Duration::from_secs(seconds);
        }
        if let Some(seconds) = number::<u64>("MC_TCP_PROGRESS_TIMEOUT_SEC", 1..=86_400)? {
            self.timeouts.progress = Duration::from_secs(seconds);
        }
        if let Some(seconds) = number::<u64>("MC_TRANSFER_TIMEOUT", 1..=86_400)? {
            self.timeouts.call = Some(Duration::from_secs(seconds));
        }
        if let Some(len) = number::<usize>("MC_HANDSHAKE_MAX_LENGTH", 1 << 20..=128 << 20)? {
            self.handshake_max_len = len;
        }
        if let Some(rate) = number("MOONRAIL_BANDWIDTH", NonZeroU64::MIN..=NonZeroU64::MAX)? {
            self.limit.bytes_per_second = Some(rate);
        }
        if let Some(id) = text("MC_METADATA_CLUSTER_ID") {
            self.cluster_id = Some(id);
        }
        if let Some(address) = text("MOONRAIL_LISTEN") {
            self.listen = Some(parse("MOONRAIL_LISTEN", &address, "an IP address")?);
        }
        if let Some(address) = text("MOONRAIL_METRICS") {
            self.metrics = Some(address);
        }
        match text("MOONRAIL_V1_CLIENTS").as_deref() {
            None | Some("serve") => {}
            Some("refuse") => self.v1_clients = V1Clients::Refuse,
            Some(other) => return Err(bad("MOONRAIL_V1_CLIENTS", other, "serve or refuse")),
        }
        if let Some(names) = text("MOONRAIL_PATHS") {
            self.paths = names.parse().map_err(|BadPaths(takes)| bad("MOONRAIL_PATHS", &names, takes))?;
        }
        if let Some(wanted) = flag("MOONRAIL_HUGE_PAGES")? {
            self.huge_pages = wanted;
        }
        if let Some(wanted) = flag("MOONRAIL_CHECKSUM")? {
            self.checksum = wanted;
        }
        if let Some(key) = key()? {
            self.key = Some(key);
        }
        if let Some(tls) = tls()? {
            self.tls = Some(tls);
        }
        if let Some(names) = text("MOONRAIL_ALLOW") {
            self.allow = names.parse().map_err(|error: UnknownName| {
                invalid(format!("the environment variable MOONRAIL_ALLOW: {error}"))
            })?;
        }
        self.force_v1 |= text("MC_TCP_PROTO").as_deref() == Some("1");
        self.no_metadata_cache |= env::var_os("MC_DISABLE_METACACHE").is_some();
        self.strict |= flag("MOONRAIL_STRICT")?.unwrap_or(false);
        #[cfg(feature = "otlp")]
        {
            self.otlp |= crate::spans::wanted();
        }
        Ok(self)
    }
}

/// With a metadata server: the address to advertise and listen on (`MC_TCP_BIND_ADDRESS`).
pub(crate) fn advertised_address() -> Option<String> {
    text("MC_TCP_BIND_ADDRESS")
}

/// Never quoted in an error.
fn key() -> Result<Option<KeySource>, Error> {
    match (env::var_os("MOONRAIL_KEY_FILE").filter(|path| !path.is_empty()), env::var_os("MOONRAIL_KEY")) {
        (Some(_), Some(key)) if !key.is_empty() => Err(invalid(
            "both MOONRAIL_KEY_FILE and MOONRAIL_KEY are set: it is not clear which key is meant".to_owned(),
        )),
        (Some(path), _) => Ok(Some(KeySource::File(path.into()))),
        (None, Some(key)) if !key.is_empty() => {
            let key = key.into_string().map_err(|_| invalid("MOONRAIL_KEY is not UTF-8 text".to_owned()))?;
            Ok(Some(KeySource::text("MOONRAIL_KEY", key)))
        }
        (None, _) => Ok(None),
    }
}

/// All of it or nothing: a certificate that is there and not used would be found in production.
fn tls() -> Result<Option<TlsSource>, Error> {
    let path = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let ca = env::var_os("MOONRAIL_TLS_CA").filter(|paths| !paths.is_empty());
    let ca: Vec<PathBuf> = ca.map(|paths| env::split_paths(&paths).collect()).unwrap_or_default();
    let (cert, key, pins) = (path("MOONRAIL_TLS_CERT"), path("MOONRAIL_TLS_KEY"), path("MOONRAIL_TLS_PINS"));
    let name = text("MOONRAIL_TLS_NAME");
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsSource { cert, key, ca, pins, name })),
        (None, None) if ca.is_empty() && pins.is_none() && name.is_none() => Ok(None),
        _ => Err(invalid(
            "TLS takes both MOONRAIL_TLS_CERT and MOONRAIL_TLS_KEY, beside MOONRAIL_TLS_CA, MOONRAIL_TLS_PINS and \
             MOONRAIL_TLS_NAME"
                .to_owned(),
        )),
    }
}

fn ports() -> Result<Option<RangeInclusive<u16>>, Error> {
    let low = first_number(["MC_MIN_RPC_PORT", "MC_MIN_PRC_PORT"])?;
    let high = first_number(["MC_MAX_RPC_PORT", "MC_MAX_PRC_PORT"])?;
    if low.is_none() && high.is_none() {
        return Ok(None);
    }
    let range = low.unwrap_or(15000)..=high.unwrap_or(17000);
    let ephemeral = EPHEMERAL.contains(range.start()) || EPHEMERAL.contains(range.end());
    if range.is_empty() || *range.start() < 1024 || ephemeral {
        let text = format!("{}..{}", range.start(), range.end());
        return Err(bad(
            "MC_MIN_RPC_PORT..MC_MAX_RPC_PORT",
            &text,
            "a range within 1024..32767 or 61000..65535",
        ));
    }
    Ok(Some(range))
}

fn first_number(names: [&str; 2]) -> Result<Option<u16>, Error> {
    for name in names {
        if let Some(value) = number(name, 1..=u16::MAX)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn number<T>(name: &str, range: RangeInclusive<T>) -> Result<Option<T>, Error>
where
    T: FromStr + PartialOrd + std::fmt::Display,
{
    let Some(value) = text(name) else { return Ok(None) };
    let takes = format!("a whole number from {} to {}", range.start(), range.end());
    let number: T = parse(name, &value, &takes)?;
    if !range.contains(&number) {
        return Err(bad(name, &value, &takes));
    }
    Ok(Some(number))
}

fn flag(name: &str) -> Result<Option<bool>, Error> {
    match text(name).as_deref() {
        None => Ok(None),
        Some("0" | "false" | "no" | "off") => Ok(Some(false)),
        Some("1" | "true" | "yes" | "on") => Ok(Some(true)),
        Some(other) => Err(bad(name, other, "1 or 0")),
    }
}

fn parse<T: FromStr>(name: &str, value: &str, takes: &str) -> Result<T, Error> {
    value.trim().parse().map_err(|_| bad(name, value, takes))
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn bad(name: &str, value: &str, takes: &str) -> Error {
    invalid(format!("the environment variable {name} is {value:?}; it takes {takes}"))
}

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidArgument, Stage::Initialize, Retry::AfterFix, message)
}
