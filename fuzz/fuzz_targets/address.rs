//! Host and port text: what parses prints as text that parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moonrail_wire::HostPort;

fuzz_target!(|text: &str| {
    if let Ok(address) = text.parse::<HostPort>() {
        assert!(!address.host.is_empty());
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});
