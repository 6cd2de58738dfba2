//! The Python bindings: `moonrail._moonrail`.
//!
//! Owns what crosses the border: conversions, the interpreter's lock, signals, exceptions, the log on standard error.
//! The classes that people use are `TransferEngine` here (the drop-in for `mooncake.engine`) and, in Python on top of
//! `Core`, the package `moonrail`. Must not know: anything below the engine.

mod activity;
mod arguments;
mod batches;
mod buffer;
mod capabilities;
mod completion;
mod core;
mod drop_in;
mod errors;
mod failures;
mod interrupt;
mod log;
mod memory;
mod opcode;
mod session;
mod topology;
mod transfers;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the `moonrail` command line `argv` (the program's name first); its exit code.
#[pyfunction]
fn cli_main(py: Python<'_>, argv: Vec<OsString>) -> i32 {
    py.detach(|| moonrail_cli::run(argv))
}

/// Logs a line at level WARNING, for the parts of the package that are written in Python.
#[pyfunction]
fn log_warning(message: &str) {
    log::start();
    tracing::warn!("{message}");
}

#[pymodule]
fn _moonrail(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", moonrail::RELEASE)?;
    module.add_class::<core::Core>()?;
    module.add_class::<completion::Batch>()?;
    module.add_class::<completion::CompletionQueue>()?;
    module.add_class::<memory::Pinned>()?;
    module.add("Memory", buffer::memory_type(module.py())?)?;
    opcode::TransferOpcode::add_to(module)?;
    module.add_class::<opcode::TransferNotify>()?;
    module.add_class::<drop_in::InnerTransferEngine>()?;
    module.add_class::<drop_in::TransferEngine>()?;
    let opcode = module.getattr("TransferOpcode")?;
    module.getattr("TransferEngine")?.setattr("TransferOpcode", opcode)?;
    module.add_function(wrap_pyfunction!(capabilities::capabilities, module)?)?;
    module.add_function(wrap_pyfunction!(capabilities::look, module)?)?;
    module.add_function(wrap_pyfunction!(capabilities::probe, module)?)?;
    module.add_function(wrap_pyfunction!(log_warning, module)?)?;
    module.add_function(wrap_pyfunction!(cli_main, module)?)
}
