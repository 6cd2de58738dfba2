//! A link between two network namespaces that can be taken down and up, as root.

use std::process::{Command, Stdio};

/// A veth pair: one end here, the other in a namespace of its own. Removed when dropped.
pub(crate) struct Link {
    namespace: String,
    here: String,
    there: String,
}

impl Link {
    /// Makes it, with these addresses on its two ends.
    ///
    /// # Errors
    /// Why not: not root, no `ip`, no such devices in this kernel.
    pub(crate) fn new(worker: usize, here: &[String], there: &[String]) -> Result<Self, String> {
        let process = std::process::id() % 100_000;
        let namespace = format!("mrf{process}-{worker}");
        let (near, far) = (format!("mrf{process}n{worker}"), format!("mrf{process}f{worker}"));
        ip(&["netns", "add", &namespace])?;
        let link = Self { namespace, here: near, there: far };
        let inside = |args: &[&str]| ip(&[&["-n", &link.namespace], args].concat());
        ip(&[
            "link",
            "add",
            &link.here,
            "type",
            "veth",
            "peer",
            "name",
            &link.there,
            "netns",
            &link.namespace,
        ])?;
        for address in here {
            ip(&["addr", "add", &format!("{address}/24"), "dev", &link.here])?;
        }
        for address in there {
            inside(&["addr", "add", &format!("{address}/24"), "dev", &link.there])?;
        }
        inside(&["link", "set", "lo", "up"])?;
        ip(&["link", "set", &link.here, "up"])?;
        link.set(true)?;
        Ok(link)
    }

    /// What runs a program in the namespace.
    pub(crate) fn prefix(&self) -> Vec<&str> {
        vec!["ip", "netns", "exec", &self.namespace]
    }

    /// Takes the link up or down: at its far end, so that the route on this one stays and nothing takes another way.
    pub(crate) fn set(&self, up: bool) -> Result<(), String> {
        let state = if up { "up" } else { "down" };
        ip(&["-n", &self.namespace, "link", "set", &self.there, state])
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.here]);
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`ip` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
