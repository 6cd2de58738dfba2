//! The methods of `mooncake.engine.TransferEngine`, and the release that each came with.

use crate::Generation;

/// A method, and the first genuine release that has it.
///
/// Seen on the wheels of `mooncake-transfer-engine` 0.3.3.post2, 0.3.4.post2, 0.3.5, 0.3.6.post1 and 0.3.7.post2, and of
/// `mooncake-transfer-engine-non-cuda` from there to 0.3.13.post1. A release between two of them may be the first.
pub const METHODS: &[(&str, &str)] = &[
    ("allocate_managed_buffer", "0.3.3"),
    ("batch_register_memory", "0.3.5"),
    ("batch_transfer_async", "0.3.5"),
    ("batch_transfer_async_read", "0.3.5"),
    ("batch_transfer_async_write", "0.3.5"),
    ("batch_transfer_sync", "0.3.4.post2"),
    ("batch_transfer_sync_read", "0.3.4.post2"),
    ("batch_transfer_sync_write", "0.3.4.post2"),
    ("batch_unregister_memory", "0.3.5"),
    ("free_managed_buffer", "0.3.3"),
    ("get_batch_transfer_status", "0.3.5"),
    ("get_engine", "0.3.7"),
    ("get_engine_ptr", "0.3.9"),
    ("get_first_buffer_address", "0.3.3"),
    ("get_local_topology", "0.3.6"),
    ("get_notifies", "0.3.7"),
    ("get_rpc_port", "0.3.3"),
    ("initialize", "0.3.3"),
    ("initialize_ext", "0.3.3"),
    ("read_bytes_from_buffer", "0.3.3"),
    ("register_memory", "0.3.3"),
    ("send_probe", "0.3.11"),
    ("transfer_check_status", "0.3.3"),
    ("transfer_submit_write", "0.3.3"),
    ("transfer_sync", "0.3.3"),
    ("transfer_sync_read", "0.3.3"),
    ("transfer_sync_write", "0.3.3"),
    ("unregister_memory", "0.3.3"),
    ("warmup_efa_segment", "0.3.11"),
    ("write_bytes_to_buffer", "0.3.3"),
];

/// The method of the drop-in that no genuine release has.
pub const OWN: &[&str] = &["last_error"];

/// Every method of the drop-in.
pub fn of_the_drop_in() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|(name, _)| *name).chain(OWN.iter().copied())
}

/// The first genuine release with the method.
pub fn since(method: &str) -> Option<&'static str> {
    METHODS.iter().find(|(name, _)| *name == method).map(|(_, release)| *release)
}

/// The methods that no release of a generation has, and those that only some of its releases have.
pub(crate) fn lacking(generation: Generation) -> (Vec<&'static str>, Vec<&'static str>) {
    let (oldest, newest) = match generation {
        Generation::UpTo0_3_4 => ((3, 0), (4, 9)),
        Generation::From0_3_5 => ((5, 0), (9, 9)),
        Generation::Between0_3_5And0_3_11 => ((5, 0), (11, 9)),
        Generation::From0_3_10 => ((10, 0), (10, 1)),
        Generation::From0_3_10Post2 => ((10, 2), (11, 9)),
        Generation::From0_3_12 | Generation::From0_3_13 => return (Vec::new(), Vec::new()),
    };
    let after = |release: (u32, u32)| {
        METHODS.iter().filter(move |(_, since)| parse(since) > release).map(|(name, _)| *name)
    };
    let missing: Vec<_> = after(newest).collect();
    let maybe = after(oldest).filter(|name| !missing.contains(name)).collect();
    (missing, maybe)
}

/// `0.3.4.post2` as (4, 2).
fn parse(release: &str) -> (u32, u32) {
    let rest = release.strip_prefix("0.3.").unwrap_or_default();
    let (minor, post) = rest.split_once(".post").unwrap_or((rest, "0"));
    (minor.parse().unwrap_or(0), post.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_generation_lacks() {
        let (missing, maybe) = lacking(Generation::UpTo0_3_4);
        assert!(missing.contains(&"batch_register_memory"), "{missing:?}");
        assert!(maybe.contains(&"batch_transfer_sync_write"), "{maybe:?}");
        assert!(!missing.contains(&"transfer_sync_write") && !maybe.contains(&"transfer_sync_write"));
        let (missing, maybe) = lacking(Generation::From0_3_10Post2);
        assert_eq!((missing, maybe), (vec![], vec!["send_probe", "warmup_efa_segment"]));
        let (missing, _) = lacking(Generation::From0_3_5);
        assert_eq!(missing, ["send_probe", "warmup_efa_segment"]);
    }

    #[test]
    fn the_names_are_in_order() {
        assert!(METHODS.is_sorted());
        assert_eq!(since("send_probe"), Some("0.3.11"));
        assert_eq!(since("nosuch"), None);
    }
}
