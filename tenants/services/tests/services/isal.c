/* Parity by Intel ISA-L, for the tests. Reads cases from standard input until its end and writes the parity of each.
 *
 * A case is four 32-bit numbers of this machine: kind ('R' Reed-Solomon with gf_gen_cauchy1_matrix, 'P' P + Q),
 * data blocks, parity blocks, bytes of a block; then the data, block after block.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l.h>

#define BLOCKS_MAX 256

static void die(const char *what) {
    fprintf(stderr, "isal: %s\n", what);
    exit(1);
}

/* Zeroed, aligned as pq_gen wants it, and long enough for its widest vector. */
static unsigned char *block(size_t length) {
    void *memory = NULL;
    size_t room = (length + 127) / 64 * 64;
    if (posix_memalign(&memory, 64, room) != 0) die("no memory");
    memset(memory, 0, room);
    return memory;
}

static void reed_solomon(int data, int parity, int length, unsigned char **blocks) {
    unsigned char *matrix = malloc((size_t)(data + parity) * data);
    unsigned char *tables = malloc((size_t)32 * data * parity);
    if (!matrix || !tables) die("no memory");
    gf_gen_cauchy1_matrix(matrix, data + parity, data);
    ec_init_tables(data, parity, matrix + data * data, tables);
    ec_encode_data(length, data, parity, tables, blocks, blocks + data);
    free(tables);
    free(matrix);
}

int main(void) {
    uint32_t head[4];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        int data = head[1], parity = head[2], length = head[3];
        unsigned char *blocks[BLOCKS_MAX];
        if (data < 1 || parity < 1 || data + parity > BLOCKS_MAX || length < 1) die("bad case");
        for (int i = 0; i < data + parity; i++) {
            blocks[i] = block(length);
            if (i < data && fread(blocks[i], length, 1, stdin) != 1) die("short input");
        }
        if (head[0] == 'R') {
            reed_solomon(data, parity, length, blocks);
        } else if (head[0] == 'P' && parity == 2) {
            /* It takes whole vectors; what is behind the block is zero, and so is its parity. */
            if (pq_gen(data + 2, (length + 31) / 32 * 32, (void **)blocks) != 0) die("pq_gen");
        } else {
            die("unknown kind");
        }
        for (int i = 0; i < data + parity; i++) {
            if (i >= data) fwrite(blocks[i], length, 1, stdout);
            free(blocks[i]);
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
