//! An engine whose transfers move nothing.

use moonrail::{Config, Engine, Entry, Error, Opcode, Request};
use moonrail_transport::{Control, Failure, Path, Target, Work};

use crate::pages::{PAGE, Pages};

/// A path that says that it is done.
struct Nothing;

impl Path for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn execute(&self, _target: &Target, _work: &Work<'_>, _control: &Control<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn forget(&self, _target: &Target) {}
}

/// Two engines of this process, each with a KV cache registered; what the first sends goes nowhere.
pub struct OverNothing {
    /// The initiator.
    pub engine: Engine,
    target: Engine,
    near: Pages,
    far: Pages,
}

impl OverNothing {
    /// Starts both.
    ///
    /// # Errors
    /// Those of [`Engine::start`] and [`Engine::register_batch`].
    pub fn start() -> Result<Self, Error> {
        let mut config = Config::new("127.0.0.1", "P2PHANDSHAKE");
        config.paths.shm = false;
        let (engine, target) = (Engine::start(config.clone())?, Engine::start(config)?);
        let (near, far) = (Pages::kv_cache(), Pages::kv_cache());
        engine.register_batch(near.regions())?;
        target.register_batch(far.regions())?;
        engine.carry_over(Box::new(Nothing));
        Ok(Self { engine, target, near, far })
    }

    /// A write of `count` pages.
    #[must_use]
    pub fn request(&self, count: u64) -> Request {
        let entry = |index| Entry {
            local: self.near.page(index, count),
            remote: self.far.page(count - 1 - index, count),
            len: PAGE,
        };
        Request::new(self.target.name(), Opcode::Write, (0..count).map(entry).collect())
    }
}
