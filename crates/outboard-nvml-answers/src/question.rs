//! One question: its arguments, and memory for its answer.

use outboard_abi::nvml::nvmlReturn_t;
use outboard_nvml::{Argument, Function, decode, find, written};
use outboard_wire::{DecodeError, Writer};

use crate::block::Block;

/// A function with the arguments of one call.
pub struct Question<'a> {
    /// The function.
    pub function: &'static Function,
    /// Its arguments. Devices among them are there.
    pub arguments: Vec<Argument<'a>>,
    /// Memory of each argument, in the same order.
    pub blocks: Vec<Block>,
}

impl<'a> Question<'a> {
    /// Reads a question about so many devices; `Err` is the status of one that nobody need answer.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not arguments of this function.
    pub fn read(
        function: &str,
        arguments: &'a [u8],
        devices: usize,
    ) -> Result<Result<Question<'a>, nvmlReturn_t>, DecodeError> {
        let Some(function) = find(function) else {
            return Ok(Err(nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND));
        };
        let arguments = decode(function, arguments)?;
        let is_there = |argument: &Argument<'_>| !matches!(argument, Argument::Device(index) if *index as usize >= devices);
        if !arguments.iter().all(is_there) {
            return Ok(Err(nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT));
        }
        let blocks = arguments.iter().map(Block::of).collect();
        Ok(Ok(Question { function, arguments, blocks }))
    }

    /// What a call with this status has written, encoded.
    pub fn results(&self, status: nvmlReturn_t) -> Vec<u8> {
        let has_written = [nvmlReturn_t::NVML_SUCCESS, nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE];
        if !has_written.contains(&status) {
            return Vec::new();
        }
        let mut writer = Writer::new();
        for (index, param) in self.function.params.iter().enumerate() {
            if param.is_output() && self.arguments[index] != Argument::Null {
                let contents = |index: usize| self.blocks[index].bytes();
                writer.bytes(written(self.function, &self.arguments, index, contents));
            }
        }
        writer.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use outboard_nvml::{Given, encode};
    use outboard_wire::Reader;

    use super::*;

    #[test]
    fn a_question_names_a_function_and_devices_that_are_there() {
        let status =
            |function, arguments: &[u8]| Question::read(function, arguments, 2).map(Result::err);
        assert_eq!(
            status("nvmlNothing", &[]),
            Ok(Some(nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND))
        );
        let function = find("nvmlDeviceGetMinorNumber").unwrap();
        let of = |device| {
            let mut writer = Writer::new();
            encode(function, &[Given::Device(device), Given::Memory(&[])], &mut writer);
            writer.into_vec()
        };
        assert_eq!(
            status(function.name, &of(2)),
            Ok(Some(nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT))
        );
        assert!(Question::read(function.name, &[1], 2).is_err());
        let given = of(1);
        let mut question = Question::read(function.name, &given, 2).unwrap().ok().unwrap();
        question.blocks[1].put(&7_u32);
        assert_eq!(question.results(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED), []);
        let results = question.results(nvmlReturn_t::NVML_SUCCESS);
        assert_eq!(Reader::new(&results).bytes().unwrap(), 7_u32.to_le_bytes());
    }
}
