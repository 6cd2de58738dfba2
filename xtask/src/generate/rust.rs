//! The codes as a Rust enum.

use super::Code;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The width of a line in rustfmt.toml.
const LINE: usize = 110;

pub(super) fn codes(codes: &[Code]) -> String {
    let mut out = String::from(
        "//! The stable codes of failures. Made by `cargo xtask generate` from crates/reference/records; change it there.\n\n\
         use std::fmt;\n\n\
         /// What went wrong, as a stable name that programs may test.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\n#[non_exhaustive]\npub enum Code {\n",
    );
    for (_, facts, _) in codes {
        let _ = write!(out, "    /// {}\n    {},\n", facts.summary, facts.variant);
    }
    out.push_str("}\n\nimpl Code {\n    /// Every code, for tables and tests.\n    pub const ALL: &'static [Code] = &[\n");
    for (_, facts, _) in codes {
        let _ = writeln!(out, "        Code::{},", facts.variant);
    }
    out.push_str(
        "    ];\n\n    /// The stable name, for example `REMOTE_NOT_REGISTERED`.\n    #[must_use]\n    \
         pub fn as_str(self) -> &'static str {\n        match self {\n",
    );
    for (name, facts, _) in codes {
        let _ = writeln!(out, "            Code::{} => \"{name}\",", facts.variant);
    }
    out.push_str(
        "        }\n    }\n\n    /// The number Mooncake's `error.h` has for it, where its callers can see one (register, unregister,\n    \
         /// probe); everything else is its general -1.\n    #[must_use]\n    pub fn mooncake(self) -> i32 {\n        match self {\n",
    );
    let mut numbers: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
    for (_, facts, _) in codes.iter().filter(|(_, facts, _)| facts.mooncake != -1) {
        numbers.entry(-facts.mooncake).or_default().push(&facts.variant);
    }
    for (number, variants) in numbers {
        let ways: Vec<String> = variants.iter().map(|variant| format!("Code::{variant}")).collect();
        let line = format!("            {} => -{number},", ways.join(" | "));
        // As rustfmt would break it.
        let line = if line.len() > LINE { line.replace(" | ", "\n            | ") } else { line };
        let _ = writeln!(out, "{line}");
    }
    out.push_str(
        "            _ => -1,\n        }\n    }\n}\n\nimpl fmt::Display for Code {\n    \
         fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {\n        f.write_str(self.as_str())\n    }\n}\n",
    );
    out
}
