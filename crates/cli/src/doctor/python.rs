//! The Python environment, as the interpreter itself sees it: runs the files of `moonrail._environment` there.

use std::path::{Path, PathBuf};
use std::process::Command;

use moonrail::compat::methods;
use moonrail_reference::Reference;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::finding::Finding;

/// Set by the console script of the Python package: the interpreter that runs it.
pub(crate) const INTERPRETER: &str = "MOONRAIL_PYTHON";

const FILES: [(&str, &str); 4] = [
    ("calls", include_str!("../../../../python/moonrail/src/moonrail/_environment/calls.py")),
    ("facts", include_str!("../../../../python/moonrail/src/moonrail/_environment/facts.py")),
    ("judge", include_str!("../../../../python/moonrail/src/moonrail/_environment/judge.py")),
    ("report", include_str!("../../../../python/moonrail/src/moonrail/_environment/report.py")),
];

/// Makes a package of the files, in memory, and runs its `report.main`. By `-c`, so that the working folder stands first
/// on the path, as it does for `python -m`.
const LOADER: &str = "
import json, sys, types
sources, argument = json.loads(sys.stdin.read())
package = types.ModuleType('_moonrail_environment')
package.__path__ = []
sys.modules[package.__name__] = package
for name, text in sources:
    module = types.ModuleType(package.__name__ + '.' + name)
    module.__package__ = package.__name__
    sys.modules[module.__name__] = module
    exec(compile(text, name + '.py', 'exec'), module.__dict__)
sys.exit(module.main(argument))
";

/// What the interpreter told.
#[derive(Default, Deserialize)]
pub(crate) struct Environment {
    pub(crate) facts: Option<Value>,
    pub(crate) findings: Vec<Finding>,
}

/// Looks at the packages of `python`, or of the interpreter that runs this command.
pub(crate) fn examine(python: Option<&Path>) -> Environment {
    let asked_for = python.is_some();
    let program = match python {
        Some(path) => path.to_owned(),
        None => std::env::var_os(INTERPRETER).map_or_else(|| "python3".into(), PathBuf::from),
    };
    let mut environment = ask(&program).unwrap_or_else(|why| {
        let what = format!("the Python environment could not be looked at with {}: {why}", program.display());
        let finding = if asked_for {
            Finding::problem("python.interpreter", what, "give another --python")
        } else {
            Finding::note("python.interpreter", what).with_fix("name the interpreter with --python")
        };
        Environment { facts: None, findings: vec![finding] }
    });
    environment.findings.iter_mut().for_each(name_the_record);
    environment
}

/// Of a finding that quotes an error: the record of the error reference that explains it.
fn name_the_record(finding: &mut Finding) {
    let quoted = finding.more.get("raises").and_then(Value::as_str).unwrap_or_default();
    if let Some(record) = Reference::shared().about(quoted).first().filter(|_| !quoted.is_empty()) {
        finding.more.insert("record".to_owned(), json!(record.id));
    }
}

fn ask(program: &Path) -> Result<Environment, String> {
    let since: Map<String, Value> =
        methods::METHODS.iter().map(|(name, release)| ((*name).to_owned(), json!(release))).collect();
    let argument = json!({ "since": since }).to_string();
    let input = json!([FILES, argument]).to_string();
    let mut child = Command::new(program)
        .args(["-c", LOADER])
        .env_remove(INTERPRETER)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // Python reads all of it before it writes anything. What does not is no Python, and says something on its own.
    let written = child.stdin.take().map(|mut stdin| std::io::Write::write_all(&mut stdin, input.as_bytes()));
    let done = child.wait_with_output().map_err(|error| error.to_string())?;
    let last = || {
        let text = String::from_utf8_lossy(&done.stderr);
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned()
    };
    if !done.status.success() {
        return Err(format!("{}: {}", done.status, last()));
    }
    if let Some(Err(error)) = written {
        return Err(format!("it does not read its input: {error}"));
    }
    serde_json::from_slice(&done.stdout).map_err(|error| format!("its answer cannot be read: {error}"))
}
