// All-pairs gravity with tiles of bodies in shared memory and rsqrtf. Checked against the host in
// double precision, and by momentum, which forces between pairs must conserve.
#include "check.h"

constexpr int BLOCK = 64;
constexpr float SOFTENING = 0.01f;

__global__ void accelerate(const float4* bodies, float3* accelerations, int n) {
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 sum = make_float3(0, 0, 0);
    for (int start = 0; start < n; start += BLOCK) {
        int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < BLOCK; k++) {
            float4 other = tile[k];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            float strength = other.w * inverse * inverse * inverse;
            sum.x += dx * strength;
            sum.y += dy * strength;
            sum.z += dz * strength;
        }
        __syncthreads();
    }
    if (i < n) {
        accelerations[i] = sum;
    }
}

__global__ void move(float4* bodies, float3* velocities, const float3* accelerations, float dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    velocities[i].x += accelerations[i].x * dt;
    velocities[i].y += accelerations[i].y * dt;
    velocities[i].z += accelerations[i].z * dt;
    bodies[i].x += velocities[i].x * dt;
    bodies[i].y += velocities[i].y * dt;
    bodies[i].z += velocities[i].z * dt;
}

int main() {
    const int n = 300, steps = 10;
    const float dt = 0.001f;
    std::vector<float4> bodies(n);
    Random random(8);
    for (float4& body : bodies) {
        body = make_float4(random.unit(), random.unit(), random.unit(), 0.5f + random.unit());
    }
    DeviceArray<float4> dbodies(bodies);
    DeviceArray<float3> dvelocities(n), daccelerations(n);
    dvelocities.zero();

    accelerate<<<blocks_for(n, BLOCK), BLOCK>>>(dbodies.get(), daccelerations.get(), n);
    CHECK(cudaGetLastError());
    std::vector<float3> first = daccelerations.download();
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double ax = 0, ay = 0, az = 0;
        for (int j = 0; j < n; j++) {
            double dx = bodies[j].x - bodies[i].x, dy = bodies[j].y - bodies[i].y, dz = bodies[j].z - bodies[i].z;
            double d2 = dx * dx + dy * dy + dz * dz + SOFTENING;
            double strength = bodies[j].w / (d2 * std::sqrt(d2));
            ax += dx * strength;
            ay += dy * strength;
            az += dz * strength;
        }
        double size = std::sqrt(ax * ax + ay * ay + az * az);
        double error = std::hypot(std::hypot(first[i].x - ax, first[i].y - ay), first[i].z - az);
        worst = std::max(worst, error / size);
    }
    EXPECT(worst < 1e-3);

    for (int step = 0; step < steps; step++) {
        accelerate<<<blocks_for(n, BLOCK), BLOCK>>>(dbodies.get(), daccelerations.get(), n);
        move<<<blocks_for(n, 128), 128>>>(dbodies.get(), dvelocities.get(), daccelerations.get(), dt, n);
    }
    CHECK(cudaGetLastError());
    std::vector<float3> velocities = dvelocities.download();
    double px = 0, py = 0, pz = 0, size = 0;
    for (int i = 0; i < n; i++) {
        px += bodies[i].w * velocities[i].x;
        py += bodies[i].w * velocities[i].y;
        pz += bodies[i].w * velocities[i].z;
        size += bodies[i].w * std::fabs(velocities[i].x);
    }
    EXPECT(std::fabs(px) + std::fabs(py) + std::fabs(pz) < 1e-4 * size);
    printf("nbody: %d bodies, %d steps, accelerations right, momentum conserved\n", n, steps);
    printf("checksum of the positions %016llx\n", (unsigned long long)checksum(dbodies.download()));
    return 0;
}
