//! Kernels and their launches.

use outboard_driver::call;
use outboard_wire::messages::*;

use crate::answer::{Answer, Outcome};
use crate::chains::Place;
use crate::generated::dispatch::LaunchCommands;
use crate::launch::{self, Config, Extras, Shape};
use crate::worker::Worker;

impl LaunchCommands for Worker {
    fn function_set_attribute(&mut self, m: FunctionSetAttribute) -> Outcome {
        self.enter()?;
        let function = self.code.function(m.function)?;
        let attribute = outboard_abi::CUfunction_attribute_enum(m.attribute);
        call!(self.table, cuFuncSetAttribute(function, attribute, m.value))
    }

    fn function_set_cache_config(&mut self, m: FunctionSetCacheConfig) -> Outcome {
        self.enter()?;
        let function = self.code.function(m.function)?;
        call!(self.table, cuFuncSetCacheConfig(function, outboard_abi::CUfunc_cache_enum(m.config)))
    }

    fn occupancy(&mut self, m: Occupancy, answer: Answer<Occupancy>) {
        let mut blocks = 0;
        let function = self.enter().and_then(|_| self.code.function(m.function));
        let outcome = function.and_then(|function| {
            let (block, shared) = (m.block as i32, m.shared as usize);
            call!(
                self.table,
                cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                    &raw mut blocks,
                    function,
                    block,
                    shared,
                    m.flags
                )
            )
        });
        answer.result(outcome.map(|()| OccupancyReply { blocks }));
    }

    fn occupancy_dynamic_shared(
        &mut self,
        m: OccupancyDynamicShared,
        answer: Answer<OccupancyDynamicShared>,
    ) {
        let mut bytes = 0usize;
        let function = self.enter().and_then(|_| self.code.function(m.function));
        let outcome = function.and_then(|function| {
            call!(
                self.table,
                cuOccupancyAvailableDynamicSMemPerBlock(
                    &raw mut bytes,
                    function,
                    m.blocks,
                    m.block
                )
            )
        });
        answer.result(outcome.map(|()| OccupancyDynamicSharedReply { bytes: bytes as u64 }));
    }

    fn occupancy_clusters(&mut self, m: OccupancyClusters, answer: Answer<OccupancyClusters>) {
        let function = self.enter().and_then(|_| self.code.function(m.function));
        let outcome = function.and_then(|function| {
            let shape = Shape { grid: m.grid, block: m.block, shared: m.shared };
            let extras =
                Extras { attributes: &m.attributes, cooperative: false, streams: &self.streams };
            let config = Config::new(&shape, core::ptr::null_mut(), &extras)?;
            let mut count = 0;
            if m.largest {
                call!(
                    self.table,
                    cuOccupancyMaxPotentialClusterSize(&raw mut count, function, config.pointer())
                )?;
            } else {
                call!(
                    self.table,
                    cuOccupancyMaxActiveClusters(&raw mut count, function, config.pointer())
                )?;
            }
            Ok(OccupancyClustersReply { count })
        });
        answer.result(outcome);
    }

    fn tensor_map_tiled(&mut self, m: TensorMapTiled, answer: Answer<TensorMapTiled>) {
        let outcome = self.enter().and_then(|_| launch::tensor_map(self.table, &m));
        answer.result(outcome.map(|map| TensorMapTiledReply { map }));
    }

    fn launch(&mut self, m: Launch<'_>) -> Outcome {
        let is_plain = m.attributes.is_empty() && !m.cooperative;
        let place = Place { ctx: self.contexts.here(), stream: m.stream };
        if !is_plain || !self.chains.goes_on_in(place) {
            self.make_launches();
        }
        let stream = self.stream(m.stream)?;
        let function = self.code.function(m.function)?;
        let shape = Shape { grid: m.grid, block: m.block, shared: m.shared };
        if is_plain {
            return self.launch_in_row(place, stream, function, shape, m.params);
        }
        let extras = Extras {
            attributes: &m.attributes,
            cooperative: m.cooperative,
            streams: &self.streams,
        };
        launch::launch(self.table, function, &shape, stream, m.params, &extras)
    }
}
