//! The two Python wheels. Knows maturin and pip; not what is in the packages.

use crate::process;
use crate::venv::Venv;
use crate::workspace::Workspace;
use std::fs;
use std::path::{Path, PathBuf};

/// The wheels of one build.
pub(crate) struct Built {
    moonrail: PathBuf,
    drop_in: PathBuf,
}

impl Built {
    pub(crate) fn paths(&self) -> [&Path; 2] {
        [&self.moonrail, &self.drop_in]
    }
}

/// Builds both and copies them to `out`.
pub(crate) fn build(workspace: &Workspace, out: &Path) -> Result<Built, String> {
    let built = build_in_cache(workspace)?;
    fs::create_dir_all(out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
    let copy = |wheel: &Path| {
        let target = out.join(wheel.file_name().expect("invariant: a wheel has a file name"));
        fs::copy(wheel, &target).map_err(|e| format!("cannot write {}: {e}", target.display()))?;
        Ok::<_, String>(target)
    };
    Ok(Built { moonrail: copy(&built.moonrail)?, drop_in: copy(&built.drop_in)? })
}

/// Builds both and installs them, with the `moonrail` command, in the tests' environment in place of the last ones.
pub(crate) fn install(workspace: &Workspace) -> Result<Venv, String> {
    let built = build_in_cache(workspace)?;
    let venv = Venv::tests(workspace)?;
    let mut pip = venv.pip(workspace);
    pip.args(["install", "--quiet", "--no-deps", "--no-index", "--force-reinstall"]).args(built.paths());
    process::run(&mut pip)?;
    // An import that finds anything but what was just installed would make every later test worthless.
    let check = "import moonrail, mooncake.engine, sys; \
                 [sys.exit(f'{m.__file__} was imported') for m in (moonrail, mooncake.engine) \
                  if not m.__file__.startswith(sys.prefix)]";
    process::run(venv.command(workspace, "python").args(["-c", check]))?;
    Ok(venv)
}

fn build_in_cache(workspace: &Workspace) -> Result<Built, String> {
    let package = workspace.require("python/moonrail")?;
    let drop_in = workspace.require("python/moonrail-mooncake")?;
    let tools = Venv::tools(workspace)?;
    let out = workspace.cache("wheels")?;
    if out.exists() {
        fs::remove_dir_all(&out).map_err(|e| format!("cannot empty {}: {e}", out.display()))?;
    }

    let mut maturin = tools.command(workspace, "maturin");
    maturin.current_dir(package).args(["build", "--release", "--locked", "--out"]).arg(&out);
    process::run(&mut maturin)?;
    let mut pip = tools.pip(workspace);
    pip.args(["wheel", "--quiet", "--no-deps", "--wheel-dir"]).arg(&out).arg(drop_in);
    process::run(&mut pip)?;

    Ok(Built { moonrail: only_wheel(&out, "moonrail-")?, drop_in: only_wheel(&out, "moonrail_mooncake-")? })
}

fn only_wheel(folder: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(prefix) && name.ends_with(".whl")
        })
        .collect();
    match (found.pop(), found.pop()) {
        (Some(wheel), None) => Ok(wheel),
        (None, _) => Err(format!("the build left no {prefix}*.whl in {}", folder.display())),
        (Some(_), Some(_)) => Err(format!("the build left several {prefix}*.whl in {}", folder.display())),
    }
}
