// Smith-Waterman local alignment of proteins with affine gaps (Gotoh), BLOSUM62: well-known
// sequences against each other, and against generated ones that hold changed copies of them.
//
// One block aligns one pair. Thread i owns row i of the matrix; the threads advance along the
// anti-diagonals and hand the cell above to their neighbour through shared memory.
#include "check.h"

#include <algorithm>
#include <cstring>
#include <string>

constexpr int MAX_ROWS = 160, GAP_OPEN = 11, GAP_EXTEND = 1;

static const char LETTERS[] = "ARNDCQEGHILKMFPSTWYV";

static const signed char BLOSUM62[20][20] = {
    {4, -1, -2, -2, 0, -1, -1, 0, -2, -1, -1, -1, -1, -2, -1, 1, 0, -3, -2, 0},  // A
    {-1, 5, 0, -2, -3, 1, 0, -2, 0, -3, -2, 2, -1, -3, -2, -1, -1, -3, -2, -3},  // R
    {-2, 0, 6, 1, -3, 0, 0, 0, 1, -3, -3, 0, -2, -3, -2, 1, 0, -4, -2, -3},  // N
    {-2, -2, 1, 6, -3, 0, 2, -1, -1, -3, -4, -1, -3, -3, -1, 0, -1, -4, -3, -3},  // D
    {0, -3, -3, -3, 9, -3, -4, -3, -3, -1, -1, -3, -1, -2, -3, -1, -1, -2, -2, -1},  // C
    {-1, 1, 0, 0, -3, 5, 2, -2, 0, -3, -2, 1, 0, -3, -1, 0, -1, -2, -1, -2},  // Q
    {-1, 0, 0, 2, -4, 2, 5, -2, 0, -3, -3, 1, -2, -3, -1, 0, -1, -3, -2, -2},  // E
    {0, -2, 0, -1, -3, -2, -2, 6, -2, -4, -4, -2, -3, -3, -2, 0, -2, -2, -3, -3},  // G
    {-2, 0, 1, -1, -3, 0, 0, -2, 8, -3, -3, -1, -2, -1, -2, -1, -2, -2, 2, -3},  // H
    {-1, -3, -3, -3, -1, -3, -3, -4, -3, 4, 2, -3, 1, 0, -3, -2, -1, -3, -1, 3},  // I
    {-1, -2, -3, -4, -1, -2, -3, -4, -3, 2, 4, -2, 2, 0, -3, -2, -1, -2, -1, 1},  // L
    {-1, 2, 0, -1, -3, 1, 1, -2, -1, -3, -2, 5, -1, -3, -1, 0, -1, -3, -2, -2},  // K
    {-1, -1, -2, -3, -1, 0, -2, -3, -2, 1, 2, -1, 5, 0, -2, -1, -1, -1, -1, 1},  // M
    {-2, -3, -3, -3, -2, -3, -3, -3, -1, 0, 0, -3, 0, 6, -4, -2, -2, 1, 3, -1},  // F
    {-1, -2, -2, -1, -3, -1, -1, -2, -2, -3, -3, -1, -2, -4, 7, -1, -1, -4, -3, -2},  // P
    {1, -1, 1, 0, -1, 0, 0, 0, -1, -2, -2, 0, -1, -2, -1, 4, 1, -3, -2, -2},  // S
    {0, -1, 0, -1, -1, -1, -1, -2, -2, -1, -1, -1, -1, -2, -1, 1, 5, -2, -2, 0},  // T
    {-3, -3, -4, -4, -2, -2, -3, -2, -2, -3, -2, -3, -1, 1, -4, -3, -2, 11, 2, -3},  // W
    {-2, -2, -2, -3, -2, -1, -2, -3, 2, -1, -1, -2, -1, 3, -3, -2, -2, 2, 7, -1},  // Y
    {0, -3, -3, -3, -1, -2, -2, -3, -3, 3, 1, -2, 1, -1, -2, -2, 0, -3, -1, 4},  // V
};

__constant__ signed char d_blosum62[20][20];

struct Pair {
    int query, query_length, target, target_length;  // offsets and lengths in the residues
};

__global__ void align(const signed char* residues, const Pair* pairs, int* scores) {
    // Score and gap state of the cell each thread finished last, for the thread below it; two
    // diagonals alternate.
    __shared__ int above_score[2][MAX_ROWS + 1];
    __shared__ int above_gap[2][MAX_ROWS + 1];
    __shared__ int best;
    Pair pair = pairs[blockIdx.x];
    int row = threadIdx.x;
    for (int i = row; i <= MAX_ROWS; i += blockDim.x) {
        for (int half = 0; half < 2; half++) {
            above_score[half][i] = 0;
            above_gap[half][i] = -GAP_OPEN;
        }
    }
    if (row == 0) {
        best = 0;
    }
    __syncthreads();

    int residue = row < pair.query_length ? residues[pair.query + row] : 0;
    int left = 0, left_gap = -GAP_OPEN, diagonal = 0, mine = 0;
    for (int step = 0; step < pair.query_length + pair.target_length - 1; step++) {
        int column = step - row;
        int from = step & 1, to = 1 - from;
        if (row < pair.query_length && column >= 0 && column < pair.target_length) {
            int above = above_score[from][row];
            int gap_down = max(above - GAP_OPEN, above_gap[from][row] - GAP_EXTEND);
            left_gap = max(left - GAP_OPEN, left_gap - GAP_EXTEND);
            int match = diagonal + d_blosum62[residue][residues[pair.target + column]];
            left = max(max(0, match), max(gap_down, left_gap));
            diagonal = above;
            mine = max(mine, left);
            above_score[to][row + 1] = left;
            above_gap[to][row + 1] = gap_down;
        }
        __syncthreads();
    }
    atomicMax(&best, mine);
    __syncthreads();
    if (row == 0) {
        scores[blockIdx.x] = best;
    }
}

static int align_on_host(const std::vector<signed char>& query, const std::vector<signed char>& target) {
    std::vector<int> score(target.size() + 1, 0), gap_down(target.size() + 1, -GAP_OPEN);
    int best = 0;
    for (signed char residue : query) {
        int diagonal = 0, left_gap = -GAP_OPEN;
        for (size_t j = 1; j <= target.size(); j++) {
            gap_down[j] = std::max(score[j] - GAP_OPEN, gap_down[j] - GAP_EXTEND);
            left_gap = std::max(score[j - 1] - GAP_OPEN, left_gap - GAP_EXTEND);
            int match = diagonal + BLOSUM62[residue][target[j - 1]];
            diagonal = score[j];
            score[j] = std::max(std::max(0, match), std::max(gap_down[j], left_gap));
            best = std::max(best, score[j]);
        }
    }
    return best;
}

struct Protein {
    std::string name;
    std::vector<signed char> residues;
};

static Protein protein(const char* name, const char* letters) {
    Protein result{name, {}};
    for (const char* letter = letters; *letter; letter++) {
        result.residues.push_back(static_cast<signed char>(strchr(LETTERS, *letter) - LETTERS));
    }
    return result;
}

int main() {
    std::vector<Protein> proteins = {
        protein("haemoglobin alpha, human",
                "MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHGKKVADALTNAVAHVDDMPNALSALSDLHAHKLRVDPVNFKL"
                "LSHCLLVTLAAHLPAEFTPAVHASLDKFLASVSTVLTSKYR"),
        protein("haemoglobin beta, human",
                "MVHLTPEEKSAVTALWGKVNVDEVGGEALGRLLVVYPWTQRFFESFGDLSTPDAVMGNPKVKAHGKKVLGAFSDGLAHLDNLKGTFATLSELHCDKLHVDP"
                "ENFRLLGNVLVCVLAHHFGKEFTPPVQAAYQKVVAGVANALAHKYH"),
        protein("myoglobin, human",
                "MGLSDGEWQLVLNVWGKVEADIPGHGQEVLIRLFKGHPETLEKFDKFKHLKSEDEMKASEDLKKHGATVLTALGGILKKKGHHEAEIKPLAQSHATKHKIP"
                "VKYLEFISECIIQVLQSKHPGDFGADAQGAMNKALELFRKDMASNYKELGFQG"),
        protein("insulin precursor, human",
                "MALWMRLLPLLALLALWGPDPAAAFVNQHLCGSHLVEALYLVCGERGFFYTPKTRREAEDLQVGQVELGGGPGAGSLQPLALEGSLQKRGIVEQCCTSICS"
                "LYQLENYCN"),
        protein("lysozyme C, chicken",
                "MRSLLILVLCFLPLAALGKVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQATNRNTDGSTDYGILQINSRWWCNDGRTPGSRNLCNIPCSAL"
                "LSSDITASVNCAKKIVSDGNGMNAWVAWRNRCKGTDVQAWIRGCRL"),
        protein("lysozyme C, human",
                "MKALIVLGLVLLSVTVQGKVFERCELARTLKRLGMDGYRGISLANWMCLAKWESGYNTRATNYNAGDRSTDYGIFQINSRYWCNDGKTPGAVNACHLSCSA"
                "LLQDNIADAVACAKRVVRDPQGIRAWVAWRNRCQNRDVRQYVQGCGV"),
        protein("ubiquitin, human",
                "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"),
    };
    const int known = static_cast<int>(proteins.size());

    // Random sequences, every other one with a changed copy of a known protein inside.
    Random random(11);
    for (int i = 0; i < 24; i++) {
        Protein made{"generated", {}};
        for (uint32_t k = random.below(60); k > 0; k--) {
            made.residues.push_back(static_cast<signed char>(random.below(20)));
        }
        if (i % 2 == 0) {
            for (signed char residue : proteins[i / 2 % known].residues) {
                uint32_t event = random.below(10);
                if (event == 0) continue;
                if (event == 1) made.residues.push_back(static_cast<signed char>(random.below(20)));
                made.residues.push_back(event == 2 ? static_cast<signed char>(random.below(20)) : residue);
            }
        }
        for (uint32_t k = 20 + random.below(60); k > 0; k--) {
            made.residues.push_back(static_cast<signed char>(random.below(20)));
        }
        proteins.push_back(made);
    }

    std::vector<signed char> residues;
    std::vector<int> starts;
    for (const Protein& one : proteins) {
        starts.push_back(static_cast<int>(residues.size()));
        residues.insert(residues.end(), one.residues.begin(), one.residues.end());
    }
    std::vector<Pair> pairs;
    std::vector<std::pair<int, int>> indices;
    for (int i = 0; i < known; i++) {
        for (int j = i; j < static_cast<int>(proteins.size()); j++) {
            pairs.push_back({starts[i], static_cast<int>(proteins[i].residues.size()), starts[j],
                             static_cast<int>(proteins[j].residues.size())});
            indices.push_back({i, j});
        }
    }

    CHECK(cudaMemcpyToSymbol(d_blosum62, BLOSUM62, sizeof(BLOSUM62)));
    DeviceArray<signed char> dresidues(residues);
    DeviceArray<Pair> dpairs(pairs);
    DeviceArray<int> dscores(pairs.size());
    align<<<static_cast<unsigned>(pairs.size()), MAX_ROWS>>>(dresidues.get(), dpairs.get(), dscores.get());
    CHECK(cudaGetLastError());
    std::vector<int> scores = dscores.download();

    for (size_t i = 0; i < pairs.size(); i++) {
        auto [a, b] = indices[i];
        EXPECT(scores[i] == align_on_host(proteins[a].residues, proteins[b].residues));
        if (b < known) {
            printf("%5d  %s / %s\n", scores[i], proteins[a].name.c_str(), proteins[b].name.c_str());
        }
    }
    printf("smith_waterman: %zu pairs right, checksum %016llx\n", pairs.size(), (unsigned long long)checksum(scores));
    return 0;
}
