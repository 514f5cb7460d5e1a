//! The texts of NVML's errors, as NVIDIA's library (580.159) has them: programs look for them.

use std::ffi::CStr;

use outboard_abi::nvml::nvmlReturn_t;

/// A sentence for an error.
pub(crate) fn text(error: nvmlReturn_t) -> &'static CStr {
    match error {
        nvmlReturn_t::NVML_SUCCESS => c"Success",
        nvmlReturn_t::NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        nvmlReturn_t::NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        nvmlReturn_t::NVML_ERROR_ALREADY_INITIALIZED => c"Already Initialized",
        nvmlReturn_t::NVML_ERROR_NOT_FOUND => c"Not Found",
        nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        nvmlReturn_t::NVML_ERROR_INSUFFICIENT_POWER => c"Insufficient External Power",
        nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        nvmlReturn_t::NVML_ERROR_TIMEOUT => c"Timeout",
        nvmlReturn_t::NVML_ERROR_IRQ_ISSUE => c"Interrupt Request Issue",
        nvmlReturn_t::NVML_ERROR_LIBRARY_NOT_FOUND => c"NVML Shared Library Not Found",
        nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND => c"Function Not Found",
        nvmlReturn_t::NVML_ERROR_CORRUPTED_INFOROM => c"Corrupted infoROM",
        nvmlReturn_t::NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        nvmlReturn_t::NVML_ERROR_RESET_REQUIRED => c"GPU requires reset",
        nvmlReturn_t::NVML_ERROR_OPERATING_SYSTEM => c"GPU access blocked by the operating system",
        nvmlReturn_t::NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        nvmlReturn_t::NVML_ERROR_IN_USE => c"In use by another client",
        nvmlReturn_t::NVML_ERROR_MEMORY => c"Insufficient Memory",
        nvmlReturn_t::NVML_ERROR_NO_DATA => c"No data",
        nvmlReturn_t::NVML_ERROR_VGPU_ECC_NOT_SUPPORTED => c"vGPU ECC not supported",
        nvmlReturn_t::NVML_ERROR_INSUFFICIENT_RESOURCES => c"Insufficient Resources",
        nvmlReturn_t::NVML_ERROR_FREQ_NOT_SUPPORTED => c"Invalid Frequency",
        nvmlReturn_t::NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        nvmlReturn_t::NVML_ERROR_DEPRECATED => c"Requested functionality has been deprecated",
        nvmlReturn_t::NVML_ERROR_NOT_READY => c"System is not in ready state",
        nvmlReturn_t::NVML_ERROR_GPU_NOT_FOUND => c"No supported GPUs were found",
        nvmlReturn_t::NVML_ERROR_INVALID_STATE => {
            c"Resource not in correct state to perform requested operation"
        }
        _ => c"Unknown Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_text() {
        assert_eq!(text(nvmlReturn_t(0)), c"Success");
        assert_eq!(text(nvmlReturn_t(4)), c"Insufficient Permissions");
        assert_eq!(text(nvmlReturn_t(25)), c"Argument version mismatch");
        assert_eq!(text(nvmlReturn_t(12_345)), c"Unknown Error");
    }
}
