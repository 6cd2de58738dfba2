//! Ports, interfaces and names.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::ops::RangeInclusive;

use moonrail::Config;

use super::super::finding::Finding;
use super::read;

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";
/// Ports that a host with a few engines needs.
const ENOUGH: usize = 64;
/// How names of interfaces begin that lead to containers and virtual machines of this host.
const BRIDGES: [&str; 6] = ["docker", "br-", "veth", "virbr", "cni", "flannel"];

pub(super) fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = match Config::new("127.0.0.1", "P2PHANDSHAKE").with_environment() {
        Ok(config) => config,
        Err(error) => {
            let fix = "correct or unset the variable: engines do not start with it";
            findings.push(Finding::problem("host.settings", error.message(), fix));
            Config::new("127.0.0.1", "P2PHANDSHAKE")
        }
    };
    let handed_out = read("/proc/sys/net/ipv4/ip_local_port_range");
    let reserved = read("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    findings.push(ports(&config.ports, &listening(), handed_out.as_deref().and_then(range), &reserved));
    findings.push(interfaces());
    findings.extend(own_name());
    findings.push(ipv6());
    findings
}

/// Whether engines find free ports in their range, and whether the kernel leaves them alone.
fn ports(
    range: &RangeInclusive<u16>,
    taken: &BTreeSet<u16>,
    handed_out: Option<RangeInclusive<u16>>,
    reserved: &str,
) -> Finding {
    let (low, high) = (range.start(), range.end());
    let count = usize::from(high - low) + 1;
    let free = count - taken.range(range.clone()).count();
    let another = "give engines another range (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT)";
    if free < 2 {
        return Finding::problem(
            "host.ports",
            format!("of the ports {low}-{high} {free} are free, and an engine needs 2"),
            another,
        );
    }
    if let Some(kernels) = handed_out.filter(|kernels| kernels.start() <= high && low <= kernels.end()) {
        let what = format!(
            "the kernel gives ports {}-{} to outgoing connections, which may take those that engines want ({low}-{high})",
            kernels.start(),
            kernels.end()
        );
        let fix = format!(
            "sysctl net.ipv4.ip_local_port_range='32768 60999', or net.ipv4.ip_local_reserved_ports={low}-{high}"
        );
        if !are_reserved(range, reserved) {
            return Finding::warning("host.ports", what, fix);
        }
    }
    let what = format!("{free} of the ports {low}-{high} are free");
    if free < ENOUGH {
        Finding::warning("host.ports", what, another)
    } else {
        Finding::ok("host.ports", what)
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (low, high) = text.split_once(char::is_whitespace)?;
    Some(low.parse().ok()?..=high.trim().parse().ok()?)
}

/// Whether one part of the kernel's list of reserved ports (`8080,9000-9100`) holds all of `range`. The kernel joins parts
/// that touch.
fn are_reserved(range: &RangeInclusive<u16>, reserved: &str) -> bool {
    let holds = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse::<u16>().ok()? <= *range.start() && high.parse::<u16>().ok()? >= *range.end())
    };
    reserved.split(',').any(|part| holds(part.trim()) == Some(true))
}

/// The ports that somebody listens on, of this network namespace.
fn listening() -> BTreeSet<u16> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| read(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(listening_port).collect()
}

fn listening_port(line: &str) -> Option<u16> {
    let mut columns = line.split_whitespace().skip(1);
    let local = columns.next()?;
    let state = columns.nth(1)?;
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    (state == LISTENING).then_some(port)
}

/// What other hosts could reach this one under.
fn interfaces() -> Finding {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    let outward: Vec<_> = found.iter().filter(|one| !one.is_loopback() && !one.is_link_local()).collect();
    let shown: Vec<String> = outward.iter().map(|one| format!("{} {}", one.name, one.ip())).collect();
    let Some(first) = outward.iter().find(|one| one.ip().is_ipv4()).or_else(|| outward.first()) else {
        let what = "this host has no address but loopback: only processes of this host can be peers";
        return Finding::warning(
            "host.interfaces",
            what,
            "bring a network interface up, if peers on other hosts are meant",
        );
    };
    let what = format!("addresses for peers: {}", shown.join(", "));
    if outward.len() > 1 && BRIDGES.iter().any(|bridge| first.name.starts_with(bridge)) {
        let what = format!("{what}; the first is a bridge to containers, which other hosts do not reach");
        return Finding::warning(
            "host.interfaces",
            what,
            "name the address that peers reach, not a wildcard or host name",
        );
    }
    Finding::ok("host.interfaces", what)
}

/// Whether this host's own name leads other hosts here.
fn own_name() -> Option<Finding> {
    let name = read("/proc/sys/kernel/hostname").filter(|name| !name.is_empty())?;
    let fix = "give engines an address, or correct /etc/hosts";
    let addresses: Vec<IpAddr> = match (name.as_str(), 0).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(error) => {
            let what = format!(
                "this host's own name {name} does not resolve ({error}); engines named by it do not start"
            );
            return Some(Finding::warning("host.name", what, fix));
        }
    };
    if !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback) {
        let what = format!(
            "this host's own name {name} resolves to {}: other hosts cannot reach engines named by it",
            addresses[0]
        );
        return Some(Finding::warning("host.name", what, fix));
    }
    None
}

fn ipv6() -> Finding {
    match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => {
            Finding::ok("host.ipv6", "IPv6 works on loopback; genuine engines use it only with MC_USE_IPV6=1")
        }
        Err(error) => Finding::note(
            "host.ipv6",
            format!("no IPv6 here ({error}): peers with IPv6 addresses cannot be reached"),
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::finding::Level;
    use super::*;

    #[test]
    fn listening_ports_are_read_from_the_table() {
        let line = "   1: 00000000:3E48 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0";
        assert_eq!(listening_port(line), Some(0x3e48));
        assert_eq!(listening_port(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(listening_port("  sl  local_address rem_address   st"), None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listening().contains(&listener.local_addr().unwrap().port()));
    }

    #[test]
    fn ports_that_are_taken_or_handed_out_are_told() {
        let level = |taken: RangeInclusive<u16>, kernels: &str| {
            ports(&(100..=199), &taken.collect(), range(kernels), "").level
        };
        assert_eq!(level(0..=5, "32768\t60999"), Level::Ok);
        assert_eq!(level(100..=150, "32768\t60999"), Level::Warning);
        assert_eq!(level(100..=198, "32768\t60999"), Level::Problem);
        assert_eq!(level(0..=5, "150\t60999"), Level::Warning);
    }

    #[test]
    fn ports_that_are_reserved_are_left_alone() {
        let level = |reserved| ports(&(100..=199), &BTreeSet::new(), range("150\t60999"), reserved).level;
        assert_eq!(level("100-199"), Level::Ok);
        assert_eq!(level("80,90-250,300"), Level::Ok, "a part that holds more");
        assert_eq!(level("100-198"), Level::Warning);
        assert_eq!(level("80,99"), Level::Warning);
        assert_eq!(level(""), Level::Warning);
    }
}
