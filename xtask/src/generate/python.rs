//! The codes as Python: which exception stands for which.

use super::Code;
use std::fmt::Write;

pub(super) fn codes(codes: &[Code]) -> Result<String, String> {
    let mut out = String::from(
        "\"\"\"The codes of failures and the exception of each.\n\nMade by `cargo xtask generate` from crates/reference/records; \
         change it there.\n\"\"\"\n\nfrom __future__ import annotations\n\nCLASSES: dict[str, str] = {\n",
    );
    for (name, _, record) in codes {
        let class = record.error_class.as_ref().ok_or_else(|| format!("{name} has no errorClass"))?;
        let _ = writeln!(out, "    \"{name}\": \"{class}\",");
    }
    out.push_str("}\n\"\"\"The class in `moonrail.errors` by code; some stages have another one.\"\"\"\n");
    Ok(out)
}
