//! A pool's memory: registered buffers, reached page by page.

use moonrail::{Engine, RegionOptions};

use crate::demo::layout::Layout;
use crate::demo::model::Shape;
use crate::failure::Failure;
use crate::serve;

pub(super) struct Memory {
    engine: Engine,
    pub(super) layout: Layout,
}

impl Memory {
    /// Allocates, registers and touches every buffer of a pool of `pages` pages.
    pub(super) fn allocate(engine: &Engine, shape: &Shape, pages: u32) -> Result<Self, Failure> {
        let len = shape.page_bytes * u64::from(pages);
        let mut starts = Vec::with_capacity(shape.buffers as usize);
        for buffer in 0..shape.buffers {
            let options = RegionOptions { name: Some(shape.buffer_name(buffer)), ..RegionOptions::default() };
            let start = engine.allocate_with(len, options).map_err(|error| {
                Failure::engine("cannot allocate the pool", &error).fix("give a smaller --pool-size")
            })?;
            serve::touch(engine, start, len)?;
            starts.push(start);
        }
        Ok(Self { engine: engine.clone(), layout: Layout::new(starts, shape.page_bytes) })
    }

    pub(super) fn read(&self, buffer: u32, page: u32, into: &mut [u8]) -> Result<(), Failure> {
        let read = self.engine.read_local(self.layout.address(buffer, page), into);
        read.map_err(|error| Failure::engine("cannot read the pool", &error))
    }

    pub(super) fn write(&self, buffer: u32, page: u32, from: &[u8]) -> Result<(), Failure> {
        let written = self.engine.write_local(self.layout.address(buffer, page), from);
        written.map_err(|error| Failure::engine("cannot write the pool", &error))
    }
}
