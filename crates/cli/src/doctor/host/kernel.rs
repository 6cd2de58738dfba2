//! Limits and settings of the kernel for this process.

use std::time::{Duration, SystemTime};

use moonrail::Kind;

use super::super::finding::Finding;
use super::{names, read};

/// Open files below which a process with many peers runs out.
const FILES: u64 = 4096;
/// `/dev/shm` of a container that nobody enlarged.
const SMALL_SHM: u64 = 64 << 20;
/// 2026-01-01: no clock is right that is before this program.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// Clocks that are read without a call into the kernel.
const QUICK_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "pvclock"];

pub(super) fn examine() -> Vec<Finding> {
    let limits = read("/proc/self/limits").unwrap_or_default();
    let mut findings = vec![same_host(), locked_memory(&limits), open_files(&limits), huge_pages()];
    findings.extend(shared_memory(&read("/proc/mounts").unwrap_or_default()));
    findings.push(clock());
    findings
}

/// Whether processes of this host can copy straight between their memories.
fn same_host() -> Finding {
    let capabilities = moonrail::capabilities();
    let shm = capabilities.items.into_iter().find(|item| item.kind == Kind::Path && item.name == "shm");
    match shm.and_then(|shm| shm.missing) {
        None => Finding::ok(
            "host.ptrace",
            "processes of one user on this host may copy straight between their memories (shm)",
        ),
        Some(missing) => Finding::note("host.ptrace", missing.why).with_fix(missing.fix),
    }
}

/// RDMA pins what is registered.
fn locked_memory(limits: &str) -> Finding {
    let limit = soft_limit(limits, "Max locked memory");
    let devices = names("/sys/class/infiniband");
    let shown = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    let what = format!("memory that may be locked: {shown}");
    match limit {
        Some(_) if !devices.is_empty() => Finding::problem(
            "host.memory-lock",
            format!("{what}; registering memory with {} needs more", devices.join(", ")),
            "ulimit -l unlimited (LimitMEMLOCK=infinity in systemd, --ulimit memlock=-1 in docker)",
        ),
        Some(_) => {
            Finding::note("host.memory-lock", format!("{what}; RDMA would need more, TCP and shm do not"))
        }
        None => Finding::ok("host.memory-lock", what),
    }
}

fn open_files(limits: &str) -> Finding {
    match hard_limit(limits, "Max open files") {
        Some(files) if files < FILES => Finding::warning(
            "host.open-files",
            format!("a process may open {files} files; each peer takes up to 4 connections each way"),
            "raise the limit: ulimit -Hn 65536 (LimitNOFILE= in systemd)",
        ),
        limit => {
            let shown = limit.map_or_else(|| "any number of".to_owned(), |files| files.to_string());
            Finding::ok("host.open-files", format!("a process may open {shown} files"))
        }
    }
}

fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    limit(limits, name, 0)
}

/// What the soft limit may be raised to; the engine does that for open files.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    limit(limits, name, 1)
}

/// A column of `/proc/self/limits`; `None` for no limit.
fn limit(limits: &str, name: &str, column: usize) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(column)?.parse().ok()
}

fn huge_pages() -> Finding {
    let transparent = read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = transparent.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("not there");
    let memory = read("/proc/meminfo").unwrap_or_default();
    let reserved =
        memory.lines().find_map(|line| line.strip_prefix("HugePages_Total:")).map_or("0", str::trim);
    let what = format!("transparent huge pages: {mode}; reserved huge pages: {reserved}");
    if mode == "never" {
        Finding::note("host.huge-pages", what).with_fix("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: copies of large regions become faster")
    } else {
        Finding::ok("host.huge-pages", what)
    }
}

fn shared_memory(mounts: &str) -> Option<Finding> {
    let options = mounts.lines().find_map(|line| {
        let mut columns = line.split(' ').skip(1);
        (columns.next()? == "/dev/shm").then(|| columns.nth(1)).flatten()
    })?;
    let size = options.split(',').find_map(|option| option.strip_prefix("size="))?;
    let kibibytes: u64 = size.strip_suffix('k')?.parse().ok()?;
    (kibibytes << 10 <= SMALL_SHM).then(|| {
        let what = format!("/dev/shm holds {kibibytes} KiB; frameworks that share memory between their processes run out of it");
        Finding::note("host.shared-memory", what).with_fix("docker run --shm-size=16g, or an emptyDir of medium Memory")
    })
}

fn clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if now < EARLIEST {
        let what = "this host's clock is in the past: certificates and the times in logs are wrong";
        return Finding::problem("host.clock", what, "set the clock (chronyd, systemd-timesyncd)");
    }
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
    if !source.is_empty() && !QUICK_CLOCKS.iter().any(|quick| source.contains(quick)) {
        let what = format!("the kernel's clock is {source}, which takes a microsecond to read");
        return Finding::warning(
            "host.clock",
            what,
            "use tsc where the machine allows it (/sys/devices/system/clocksource/clocksource0)",
        );
    }
    Finding::ok(
        "host.clock",
        format!("clock source {}", if source.is_empty() { "not told" } else { &source }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max open files            1024                 2048                 files     \n\
                          Max locked memory         unlimited            unlimited            bytes     ";

    #[test]
    fn limits_are_read() {
        assert_eq!(soft_limit(LIMITS, "Max open files"), Some(1024));
        assert_eq!(hard_limit(LIMITS, "Max open files"), Some(2048));
        assert_eq!(soft_limit(LIMITS, "Max locked memory"), None);
    }

    #[test]
    fn a_containers_shared_memory_is_noticed() {
        let mounts = |size: &str| {
            format!("proc /proc proc rw 0 0\nshm /dev/shm tmpfs rw,nosuid,size={size},mode=1777 0 0")
        };
        assert!(shared_memory(&mounts("65536k")).is_some());
        assert!(shared_memory(&mounts("16777216k")).is_none());
        assert!(shared_memory("tmpfs /dev/shm tmpfs rw 0 0").is_none());
    }
}
