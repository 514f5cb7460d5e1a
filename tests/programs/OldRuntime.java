// A release of CUDA's runtime of years ago, which JCuda's natives have in them, by JCuda's names of
// its functions: devices, copies of every kind, streams, events, callbacks, arrays, managed and
// pinned memory, errors. A kernel is launched by the driver's functions on the runtime's memory.
// What comes of that is what the processor computes.
import static jcuda.driver.JCudaDriver.cuLaunchKernel;
import static jcuda.driver.JCudaDriver.cuModuleGetFunction;
import static jcuda.driver.JCudaDriver.cuModuleLoadData;
import static jcuda.runtime.JCuda.*;
import static jcuda.runtime.cudaMemcpyKind.*;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.concurrent.atomic.AtomicInteger;
import jcuda.Pointer;
import jcuda.Sizeof;
import jcuda.driver.CUfunction;
import jcuda.driver.CUmodule;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import jcuda.runtime.*;

public class OldRuntime {
    static final int COUNT = 10000;
    static final long BYTES = COUNT * (long) Sizeof.FLOAT;

    static final String SCALE = """
        .version 3.2
        .target sm_30
        .address_size 64
        .visible .entry scale(.param .u64 values, .param .f32 factor, .param .u32 count) {
            .reg .pred %p;
            .reg .f32 %f<3>;
            .reg .b32 %r<5>;
            .reg .b64 %d<3>;
            mov.u32 %r0, %ctaid.x;
            mov.u32 %r1, %ntid.x;
            mov.u32 %r2, %tid.x;
            mad.lo.u32 %r3, %r0, %r1, %r2;
            ld.param.u32 %r4, [count];
            setp.ge.u32 %p, %r3, %r4;
            @%p ret;
            ld.param.u64 %d0, [values];
            cvta.to.global.u64 %d0, %d0;
            mad.wide.u32 %d1, %r3, 4, %d0;
            ld.global.f32 %f0, [%d1];
            ld.param.f32 %f1, [factor];
            mul.rn.f32 %f2, %f0, %f1;
            st.global.f32 [%d1], %f2;
            ret;
        }
        """;

    static void expect(boolean is, String what) {
        if (!is) throw new AssertionError(what);
    }

    static float[] values() {
        float[] values = new float[COUNT];
        for (int i = 0; i < COUNT; i++) values[i] = i * 0.5f;
        return values;
    }

    static void expectScaled(float[] found, float factor, String what) {
        float[] before = values();
        for (int i = 0; i < COUNT; i++) expect(found[i] == before[i] * factor, what + " " + i);
    }

    static void launch(CUfunction scale, Pointer memory, float factor, cudaStream_t stream) {
        Pointer parameters = Pointer.to(Pointer.to(memory), Pointer.to(new float[] {factor}), Pointer.to(new int[] {COUNT}));
        CUstream same = stream == null ? null : new CUstream(stream);
        cuLaunchKernel(scale, (COUNT + 255) / 256, 1, 1, 256, 1, 1, 0, same, parameters, null);
    }

    static void devices() {
        int[] number = new int[1];
        cudaGetDeviceCount(number);
        expect(number[0] >= 1, "there is a device");
        cudaDeviceProp properties = new cudaDeviceProp();
        cudaGetDeviceProperties(properties, 0);
        expect(properties.getName().length() > 0 && properties.warpSize == 32 && properties.maxThreadsPerBlock == 1024, "properties");
        cudaDeviceGetAttribute(number, cudaDeviceAttr.cudaDevAttrMultiProcessorCount, 0);
        expect(number[0] == properties.multiProcessorCount, "multiprocessors");
        long[] free = new long[1], total = new long[1];
        cudaMemGetInfo(free, total);
        expect(free[0] > 0 && free[0] <= total[0] && total[0] == properties.totalGlobalMem, "memory");
    }

    static void copies(CUfunction scale) {
        Pointer one = new Pointer(), other = new Pointer();
        cudaMalloc(one, BYTES);
        cudaMalloc(other, BYTES);
        cudaMemcpy(one, Pointer.to(values()), BYTES, cudaMemcpyHostToDevice);
        launch(scale, one, 3, null);
        cudaMemcpy(other, one, BYTES, cudaMemcpyDeviceToDevice);
        float[] found = new float[COUNT];
        cudaMemcpy(Pointer.to(found), other, BYTES, cudaMemcpyDeviceToHost);
        expectScaled(found, 3, "copied");
        cudaMemset(other, 0, BYTES);
        cudaMemcpy(Pointer.to(found), other, BYTES, cudaMemcpyDeviceToHost);
        for (float value : found) expect(value == 0, "cleared");
        cudaFree(one);
        cudaFree(other);
    }

    static void streams(CUfunction scale) {
        Pointer device = new Pointer(), pinned = new Pointer();
        cudaMalloc(device, BYTES);
        cudaHostAlloc(pinned, BYTES, cudaHostAllocDefault);
        FloatBuffer memory = floats(pinned);
        memory.put(values());
        cudaStream_t stream = new cudaStream_t();
        cudaStreamCreate(stream);
        cudaEvent_t begin = new cudaEvent_t(), end = new cudaEvent_t();
        cudaEventCreate(begin);
        cudaEventCreate(end);
        AtomicInteger called = new AtomicInteger();
        cudaEventRecord(begin, stream);
        cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, stream);
        for (int i = 0; i < 3; i++) launch(scale, device, 2, stream);
        cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, stream);
        cudaStreamAddCallback(stream, (s, status, data) -> called.incrementAndGet(), null, 0);
        cudaEventRecord(end, stream);
        cudaStreamSynchronize(stream);
        float[] milliseconds = {-1};
        cudaEventElapsedTime(milliseconds, begin, end);
        expect(milliseconds[0] >= 0 && called.get() == 1, "the event and the callback");
        float[] found = new float[COUNT];
        memory.rewind();
        memory.get(found);
        expectScaled(found, 8, "in a stream");
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        cudaStreamDestroy(stream);
        cudaFreeHost(pinned);
        cudaFree(device);
    }

    static FloatBuffer floats(Pointer memory) {
        ByteBuffer bytes = memory.getByteBuffer(0, BYTES);
        return bytes.order(ByteOrder.nativeOrder()).asFloatBuffer();
    }

    static void pitchesAndArrays() {
        int width = 100, height = COUNT / width;
        long row = width * (long) Sizeof.FLOAT;
        Pointer pitched = new Pointer();
        long[] pitch = new long[1];
        cudaMallocPitch(pitched, pitch, row, height);
        expect(pitch[0] >= row, "a pitch");
        cudaMemcpy2D(pitched, pitch[0], Pointer.to(values()), row, row, height, cudaMemcpyHostToDevice);
        cudaArray array = new cudaArray();
        cudaMallocArray(array, cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKind.cudaChannelFormatKindFloat), width, height);
        cudaMemcpy2DToArray(array, 0, 0, pitched, pitch[0], row, height, cudaMemcpyDeviceToDevice);
        float[] found = new float[COUNT];
        cudaMemcpy2DFromArray(Pointer.to(found), row, array, 0, 0, row, height, cudaMemcpyDeviceToHost);
        expectScaled(found, 1, "in an array");
        cudaFreeArray(array);
        cudaFree(pitched);
    }

    // JCuda does not show it to the processor.
    static void managed(CUfunction scale) {
        Pointer memory = new Pointer();
        cudaMallocManaged(memory, BYTES, cudaMemAttachGlobal);
        cudaMemcpy(memory, Pointer.to(values()), BYTES, cudaMemcpyHostToDevice);
        launch(scale, memory, 5, null);
        float[] found = new float[COUNT];
        cudaMemcpy(Pointer.to(found), memory, BYTES, cudaMemcpyDeviceToHost);
        expectScaled(found, 5, "managed");
        cudaFree(memory);
    }

    static void errors() {
        JCuda.setExceptionsEnabled(false);
        expect(cudaMalloc(new Pointer(), 1L << 60) == cudaError.cudaErrorMemoryAllocation, "too much memory");
        expect(cudaGetLastError() == cudaError.cudaErrorMemoryAllocation && cudaGetLastError() == cudaError.cudaSuccess, "the last error");
        expect(cudaSetDevice(1000) == cudaError.cudaErrorInvalidDevice && cudaGetLastError() != cudaError.cudaSuccess, "no such device");
        JCuda.setExceptionsEnabled(true);
    }

    public static void main(String[] arguments) {
        JCuda.setExceptionsEnabled(true);
        JCudaDriver.setExceptionsEnabled(true);
        int[] version = new int[1];
        cudaRuntimeGetVersion(version);
        devices();
        CUmodule module = new CUmodule();
        cuModuleLoadData(module, SCALE + "\0");
        CUfunction scale = new CUfunction();
        cuModuleGetFunction(scale, module, "scale");
        copies(scale);
        streams(scale);
        pitchesAndArrays();
        managed(scale);
        errors();
        System.out.println("runtime " + version[0] + ": right");
    }
}
