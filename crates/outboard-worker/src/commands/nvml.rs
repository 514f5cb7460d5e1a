//! NVML.

use outboard_wire::messages::*;

use crate::answer::Answer;
use crate::generated::dispatch::NvmlCommands;
use crate::worker::Worker;

impl NvmlCommands for Worker {
    fn nvml_query(&mut self, message: NvmlQuery<'_>, answer: Answer<NvmlQuery<'static>>) {
        match self.offered.nvml(message.function, message.arguments) {
            Ok((status, results)) => {
                answer.ok(&NvmlQueryReply { status: status.0, results: &results })
            }
            Err(error) => self.violated(&error),
        }
    }

    fn nvml_processes(&mut self, message: NvmlProcesses, answer: Answer<NvmlProcesses>) {
        answer.ok(&NvmlProcessesReply { processes: self.offered.processes(message.device) });
    }
}
