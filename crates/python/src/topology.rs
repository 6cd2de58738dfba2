//! `get_local_topology`: the memory nodes of this machine in the form that callers parse.

use std::fs;

/// One key a memory node, `cpu:0` and so on, each with two empty lists: the preferred and the other RDMA devices.
pub(crate) fn json() -> String {
    let mut nodes: Vec<u32> = fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .collect();
    nodes.sort_unstable();
    if nodes.is_empty() {
        nodes.push(0);
    }
    let members: Vec<String> =
        nodes.iter().map(|node| format!("\t\"cpu:{node}\": [\n\t\t[],\n\t\t[]\n\t]")).collect();
    format!("{{\n{}\n}}\n", members.join(",\n"))
}
