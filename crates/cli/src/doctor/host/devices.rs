//! RDMA devices and GPUs, and the libraries that go with them.

use super::super::finding::Finding;
use super::{libraries, names, read};

const INFINIBAND: &str = "/sys/class/infiniband";

pub(super) fn examine() -> Vec<Finding> {
    let mut findings = vec![rdma()];
    findings.extend(gpu());
    findings
}

fn rdma() -> Finding {
    let devices = names(INFINIBAND);
    let library = libraries::find("libibverbs.so.1");
    if devices.is_empty() {
        let library = if library.is_some() {
            "libibverbs is installed"
        } else {
            "no libibverbs, which Mooncake's wheels need to be imported"
        };
        let what = format!(
            "no RDMA devices ({library}): \"rdma\", SGLang's default, is carried out over TCP; Moonrail says so, Mooncake does not"
        );
        return Finding::note("host.rdma", what).with_fix(
            "MOONCAKE_PROTOCOL=tcp says what is meant; MOONRAIL_STRICT=1 makes the fallback an error",
        );
    }
    let shown: Vec<String> = devices.iter().map(|device| format!("{device} ({})", ports(device))).collect();
    let what = format!("RDMA devices: {}", shown.join(", "));
    if library.is_none() {
        let fix = "apt-get install libibverbs1 ibverbs-providers (Debian), dnf install rdma-core (Fedora)";
        return Finding::problem("host.rdma", format!("{what}, but no libibverbs.so.1"), fix);
    }
    if !shown.iter().any(|device| device.contains("ACTIVE")) {
        return Finding::problem(
            "host.rdma",
            format!("{what}: no port is active"),
            "bring a port up (ip link, opensm), or use tcp",
        );
    }
    Finding::note("host.rdma", format!("{what}; this build of Moonrail has no RDMA path and uses tcp"))
}

/// `1 ACTIVE InfiniBand` and so on.
fn ports(device: &str) -> String {
    let folder = format!("{INFINIBAND}/{device}/ports");
    let port = |port: &String| {
        let state = read(&format!("{folder}/{port}/state")).unwrap_or_default();
        let layer = read(&format!("{folder}/{port}/link_layer")).unwrap_or_default();
        format!("port {port} {} {layer}", state.rsplit(' ').next().unwrap_or_default())
    };
    names(&folder).iter().map(port).collect::<Vec<_>>().join(", ")
}

fn gpu() -> Vec<Finding> {
    let mut findings = Vec::new();
    let nvidia = read("/proc/driver/nvidia/version");
    let cards = names("/proc/driver/nvidia/gpus").len();
    if let Some(version) = &nvidia {
        let driver = version.lines().next().unwrap_or_default().trim_start_matches("NVRM version: ");
        let what = format!("{cards} NVIDIA GPUs, driver {driver}");
        findings.push(match libraries::find("libcuda.so.1") {
            Some(_) => Finding::ok("host.gpu", what),
            None => Finding::problem(
                "host.gpu",
                format!("{what}, but no libcuda.so.1"),
                "install the driver's libraries, or run the container with --gpus all",
            ),
        });
        let peer = ["/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem"]
            .iter()
            .any(|path| std::path::Path::new(path).exists());
        if !names(INFINIBAND).is_empty() && !peer {
            let what = "NVIDIA GPUs and RDMA devices, but no nvidia_peermem: device memory cannot be registered with them";
            findings.push(Finding::warning("host.gpu-rdma", what, "modprobe nvidia_peermem"));
        }
    }
    if std::path::Path::new("/dev/kfd").exists() {
        findings.push(match libraries::find("libamdhip64.so") {
            Some(_) => Finding::ok("host.gpu", "AMD GPUs with ROCm"),
            None => Finding::note("host.gpu", "AMD GPUs, but no libamdhip64.so on the linker's path"),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::note("host.gpu", "no GPU: engines move host memory only"));
    }
    findings
}
