//! The functions of a worker process.

use outboard_wire::codec::decode_all;
use outboard_wire::handshake::{Refusal, RefusalCode};
use outboard_wire::window::Window;
use outboard_wire::{Encode, Writer};

use super::gauges;
use super::io::{Build, ContextMemory, Gauge, Start, Warm};
use super::output::Output;
use super::prepared::{Prepared, Setup, no_driver};
use super::worker::Worker;

impl Build for Setup {
    type Prepared = Prepared;
    type Handler = Worker;

    fn prepare(self, warm: Option<&Warm>, window: Option<Window>) -> Result<Prepared, Refusal> {
        let mut prepared = Prepared::new(self, window)?;
        if let Some(warm) = warm {
            prepared.warm(warm);
        }
        Ok(prepared)
    }

    fn describe(self, platform: &[u8]) -> Result<Prepared, Refusal> {
        let Ok(platform) = decode_all(platform) else { return self.prepare(None, None) };
        let failed = |error: std::io::Error| Refusal {
            code: RefusalCode::WorkerFailed,
            sentence: error.to_string(),
        };
        let output = Output::catch().map_err(failed)?;
        Ok(Prepared::of(self, no_driver(), platform, output))
    }

    fn snapshot(prepared: &Prepared) -> Vec<u8> {
        let mut writer = Writer::new();
        prepared.platform.encode(&mut writer);
        writer.into_vec()
    }

    fn contexts(prepared: &Prepared) -> Vec<ContextMemory> {
        prepared.contexts.clone()
    }

    fn window(prepared: &Prepared) -> Option<Window> {
        prepared.window
    }

    fn watch(prepared: Prepared) -> Box<dyn FnMut() -> Vec<Gauge>> {
        gauges::watch(prepared)
    }

    fn build(prepared: Prepared, start: &Start) -> Result<Worker, Refusal> {
        Worker::new(prepared, start)
    }
}
