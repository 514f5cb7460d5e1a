// Thread A launches N kernels that each add to a counter; all its calls return; then thread B
// copies synchronously and must see all N. No stale value in 300 rounds for each N.
#include "check.h"

#include <condition_variable>
#include <mutex>
#include <thread>

__global__ void add_one(unsigned* counter) { *counter += 1; }

// Hands a turn back and forth between two threads.
class Turn {
public:
    void wait_for(int who) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return turn_ == who; });
    }
    void give(int who) {
        std::lock_guard<std::mutex> lock(mutex_);
        turn_ = who;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int turn_ = 0;
};

int main() {
    const int rounds = 300;
    DeviceArray<unsigned> counter(1);
    for (int launches : {1, 16, 64, 256}) {
        counter.zero();
        Turn turn;
        int stale = 0;
        std::thread launcher([&] {
            for (int round = 0; round < rounds; round++) {
                turn.wait_for(0);
                for (int i = 0; i < launches; i++) {
                    add_one<<<1, 1>>>(counter.get());
                }
                CHECK(cudaGetLastError());
                turn.give(1);
            }
        });
        std::thread copier([&] {
            for (int round = 1; round <= rounds; round++) {
                turn.wait_for(1);
                unsigned seen = 0;
                CHECK(cudaMemcpy(&seen, counter.get(), sizeof(seen), cudaMemcpyDeviceToHost));
                stale += seen != static_cast<unsigned>(round * launches);
                turn.give(0);
            }
        });
        launcher.join();
        copier.join();
        printf("order: %d rounds of %d launches, %d stale\n", rounds, launches, stale);
        EXPECT(stale == 0);
    }
    return 0;
}
