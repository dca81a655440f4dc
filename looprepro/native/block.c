/* What a transformer block does between its matrix products, and the recurrent step of the operators, on one CPU thread.
 *
 * Compiled once per number type (-DREAL=float or double) by library.py. Every array is contiguous; "stack" counts models that
 * are trained together, each with its own weights and "rows" rows of its own. No fast-math: a NaN or an infinity comes out
 * where it went in, and sums run in a fixed order.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
#define LANES ((i64)(64 / sizeof(REAL)))
#define FLUSH 64 /* rows summed apart before they join a gradient: keeps long float32 sums exact to a few units */

typedef REAL vec __attribute__((vector_size(64), aligned(8), may_alias));
#if REAL_BYTES == 4
typedef int32_t ivec __attribute__((vector_size(64), aligned(8), may_alias));
#define ROUNDER 12582912.0f /* 1.5 * 2^23 */
#define MANTISSA 23
#define BIAS 127
#define TERMS 7
#define SQRT sqrtf
#else
typedef int64_t ivec __attribute__((vector_size(64), aligned(8), may_alias));
#define ROUNDER 6755399441055744.0 /* 1.5 * 2^52 */
#define MANTISSA 52
#define BIAS 1023
#define TERMS 13
#define SQRT sqrt
#endif

static const REAL INVERSE_FACTORIAL[14] = {
    (REAL)1.0, (REAL)1.0, (REAL)0.5, (REAL)1.6666666666666666e-1, (REAL)4.1666666666666664e-2, (REAL)8.3333333333333332e-3,
    (REAL)1.3888888888888889e-3, (REAL)1.9841269841269841e-4, (REAL)2.4801587301587302e-5, (REAL)2.7557319223985893e-6,
    (REAL)2.7557319223985888e-7, (REAL)2.505210838544172e-8, (REAL)2.08767569878681e-9, (REAL)1.6059043836821613e-10};

/* exp(x) for |x| < 80: x = n ln 2 + r, Taylor in r, n into the exponent. Accurate to about one unit in the last place. */
static inline vec exponential(vec x) {
    const vec zero = {0};
    vec shifted = x * (REAL)1.4426950408889634 + (zero + (REAL)ROUNDER);
    vec n = shifted - (REAL)ROUNDER;
    vec r = x - n * (REAL)0.693359375; /* ln 2 in two parts, the first exact in few bits */
    r = r + n * (REAL)2.12194440054690583e-4;
    vec p = zero + INVERSE_FACTORIAL[TERMS];
    for (int k = TERMS - 1; k >= 0; k--) p = p * r + INVERSE_FACTORIAL[k];
    vec base = zero + (REAL)ROUNDER;
    ivec power = (((ivec)shifted - (ivec)base) + BIAS) << MANTISSA;
    return p * (vec)power;
}

static inline i64 up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }

/* out = x / sqrt(mean(x^2) + eps) * weight, rows of "width". */
void rms_norm(const REAL *x, const REAL *weight, REAL *out, i64 stack, i64 rows, i64 width, double eps) {
    for (i64 s = 0; s < stack; s++, weight += width)
        for (i64 row = 0; row < rows; row++, x += width, out += width) {
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (i64 i = 0; i < width; i++) sum += x[i] * x[i];
            const REAL scale = 1 / SQRT(sum / width + (REAL)eps);
#pragma omp simd
            for (i64 i = 0; i < width; i++) out[i] = x[i] * scale * weight[i];
        }
}

/* Gradient of rms_norm: grad_x = residual + J^T grad, grad_weight += sum over rows; and the norm itself again into "normed".
 * residual and normed may be null. partial: scratch [width]. */
void rms_norm_backward(const REAL *x, const REAL *weight, const REAL *grad, const REAL *residual, REAL *grad_x, REAL *normed,
                       REAL *grad_weight, REAL *partial, i64 stack, i64 rows, i64 width, double eps) {
    for (i64 s = 0; s < stack; s++, weight += width, grad_weight += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, x += width, grad += width, grad_x += width) {
            REAL sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
            for (i64 i = 0; i < width; i++) {
                sum += x[i] * x[i];
                along += x[i] * grad[i] * weight[i];
            }
            const REAL scale = 1 / SQRT(sum / width + (REAL)eps);
            const REAL back = along * scale * scale * scale / width;
            if (residual) {
#pragma omp simd
                for (i64 i = 0; i < width; i++) grad_x[i] = residual[i] + (grad[i] * weight[i] * scale - x[i] * back);
                residual += width;
            } else {
#pragma omp simd
                for (i64 i = 0; i < width; i++) grad_x[i] = grad[i] * weight[i] * scale - x[i] * back;
            }
            if (normed) {
#pragma omp simd
                for (i64 i = 0; i < width; i++) {
                    const REAL hat = x[i] * scale;
                    normed[i] = hat * weight[i];
                    partial[i] += hat * grad[i];
                }
                normed += width;
            } else {
#pragma omp simd
                for (i64 i = 0; i < width; i++) partial[i] += x[i] * scale * grad[i];
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_weight[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}

/* squared = relu(x)^2; a NaN stays one. */
void relu_square(const REAL *x, REAL *squared, i64 count) {
#pragma omp simd
    for (i64 i = 0; i < count; i++) {
        const REAL positive = x[i] < 0 ? 0 : x[i];
        squared[i] = positive * positive;
    }
}

/* grad *= factor * relu(x) in place, and relu(x)^2 again into "squared". factor 2 is the derivative. */
void relu_square_backward(const REAL *x, REAL *grad, REAL *squared, i64 count, double factor) {
    const REAL f = (REAL)factor;
#pragma omp simd
    for (i64 i = 0; i < count; i++) {
        const REAL positive = x[i] < 0 ? 0 : x[i];
        grad[i] *= f * positive;
        squared[i] = positive * positive;
    }
}

/* c[0..7][0..LANES) = sum over k < depth of a[r * a_row + k * a_step] * b[k * b_step + lane]. */
static inline void tile(const REAL *restrict a, i64 a_row, i64 a_step, const REAL *restrict b, i64 b_step, i64 depth,
                        REAL *restrict c, i64 c_row) {
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
    for (i64 k = 0; k < depth; k++, a += a_step, b += b_step) {
        const vec right = *(const vec *)b;
        s0 += a[0] * right;
        s1 += a[a_row] * right;
        s2 += a[2 * a_row] * right;
        s3 += a[3 * a_row] * right;
        s4 += a[4 * a_row] * right;
        s5 += a[5 * a_row] * right;
        s6 += a[6 * a_row] * right;
        s7 += a[7 * a_row] * right;
    }
    *(vec *)c = s0;
    *(vec *)(c + c_row) = s1;
    *(vec *)(c + 2 * c_row) = s2;
    *(vec *)(c + 3 * c_row) = s3;
    *(vec *)(c + 4 * c_row) = s4;
    *(vec *)(c + 5 * c_row) = s5;
    *(vec *)(c + 6 * c_row) = s6;
    *(vec *)(c + 7 * c_row) = s7;
}

/* One (row, head) of attention in the cache. time and head width are padded with zeros, to multiples of 16 and of LANES. */
typedef struct {
    i64 time, head, padded_time, padded_head;
    REAL *q, *k, *v, *grad_out;     /* [padded_time][padded_head]; q and k turned, normed, even coordinates first; q scaled */
    REAL *k_turned, *v_turned;      /* [padded_head][padded_time] */
    REAL *q_scale, *k_scale;        /* [padded_time]: 1 / sqrt(mean square + eps) */
    REAL *weights, *grad_scores;    /* [padded_time][padded_time], zero above the diagonal of each block of 8 rows */
    REAL *result, *result_2;        /* [padded_time][padded_head] */
} Head;

static REAL *open_head(Head *h, i64 time, i64 head) {
    h->time = time, h->head = head, h->padded_time = up(time, 16), h->padded_head = up(head, LANES);
    const i64 flat = h->padded_time * h->padded_head, square = h->padded_time * h->padded_time;
    const i64 count = 8 * flat + 2 * square + 2 * h->padded_time;
    REAL *memory = aligned_alloc(64, up(count * sizeof(REAL), 64));
    if (!memory) return NULL;
    memset(memory, 0, count * sizeof(REAL));
    REAL **places[8] = {&h->q, &h->k, &h->v, &h->grad_out, &h->k_turned, &h->v_turned, &h->result, &h->result_2};
    for (int i = 0; i < 8; i++) *places[i] = memory + i * flat;
    h->weights = memory + 8 * flat, h->grad_scores = h->weights + square;
    h->q_scale = h->grad_scores + square, h->k_scale = h->q_scale + h->padded_time;
    return memory;
}

/* RoPE and the norm without weights, times "extra"; the two coordinates of pair i go to i and head / 2 + i. */
static inline void turn(const REAL *x, i64 stride, const REAL *rope, const Head *h, REAL eps, REAL extra, REAL *out, REAL *scales) {
    const i64 half = h->head / 2;
    for (i64 t = 0; t < h->time; t++, x += stride, rope += h->head, out += h->padded_head) {
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (i64 i = 0; i < half; i++) {
            const REAL a = x[2 * i], b = x[2 * i + 1], c = rope[2 * i], s = rope[2 * i + 1];
            const REAL first = a * c - b * s, second = b * c + a * s;
            out[i] = first;
            out[half + i] = second;
            sum += first * first + second * second;
        }
        const REAL scale = 1 / SQRT(sum / h->head + eps);
        scales[t] = scale;
#pragma omp simd
        for (i64 i = 0; i < h->head; i++) out[i] *= scale * extra;
    }
}

static inline void transpose(const REAL *from, REAL *to, const Head *h) {
    for (i64 t = 0; t < h->time; t++)
        for (i64 i = 0; i < h->head; i++) to[i * h->padded_time + t] = from[t * h->padded_head + i];
}

static inline void gather(const REAL *x, i64 stride, REAL *to, const Head *h) {
    for (i64 t = 0; t < h->time; t++)
        for (i64 i = 0; i < h->head; i++) to[t * h->padded_head + i] = x[t * stride + i];
}

/* Causal softmax(q k^T) into h->weights. Normed q and k bound the scores by sqrt(head width): no maximum is subtracted. */
static inline void attend(const Head *h) {
    const i64 wide = h->padded_time;
    for (i64 i0 = 0; i0 < h->time; i0 += 8) {
        const i64 columns = up(i0 + 8, LANES);
        for (i64 j = 0; j < columns; j += LANES)
            tile(h->q + i0 * h->padded_head, h->padded_head, 1, h->k_turned + j, wide, h->head, h->weights + i0 * wide + j, wide);
        for (i64 i = i0; i < i0 + 8; i++) {
            REAL *row = h->weights + i * wide;
            if (i >= h->time) {
                memset(row, 0, columns * sizeof(REAL));
                continue;
            }
            const i64 inside = up(i + 1, LANES);
            for (i64 j = 0; j < inside; j += LANES) *(vec *)(row + j) = exponential(*(vec *)(row + j));
            for (i64 j = i + 1; j < columns; j++) row[j] = 0;
            vec sums = {0};
            for (i64 j = 0; j < inside; j += LANES) sums += *(vec *)(row + j);
            REAL sum = 0;
            for (i64 lane = 0; lane < LANES; lane++) sum += sums[lane];
            const REAL scale = 1 / sum;
            for (i64 j = 0; j < inside; j += LANES) *(vec *)(row + j) *= scale;
        }
    }
}

static inline void load_head(const Head *h, const REAL *qkv, i64 width, i64 head, const REAL *rope, REAL eps) {
    const REAL *x = qkv + head * h->head;
    turn(x, 3 * width, rope, h, eps, 1 / SQRT((REAL)h->head), h->q, h->q_scale);
    turn(x + width, 3 * width, rope, h, eps, 1, h->k, h->k_scale);
    gather(x + 2 * width, 3 * width, h->v, h);
    transpose(h->k, h->k_turned, h);
}

/* Causal attention with RoPE and qk-norm: qkv [rows, time, 3, heads, head], rope [time, head / 2, 2], out [rows, time, heads,
 * head]. Returns 0, or 1 without memory. */
int attention(const REAL *qkv, const REAL *rope, REAL *out, i64 rows, i64 time, i64 heads, i64 head, double eps) {
    Head h;
    REAL *memory = open_head(&h, time, head);
    if (!memory) return 1;
    const i64 width = heads * head;
    for (i64 row = 0; row < rows; row++, qkv += time * 3 * width, out += time * width)
        for (i64 n = 0; n < heads; n++) {
            load_head(&h, qkv, width, n, rope, (REAL)eps);
            attend(&h);
            for (i64 i = 0; i < time; i += 8) {
                const i64 keys = i + 8 < time ? i + 8 : time;
                for (i64 c = 0; c < head; c += LANES)
                    tile(h.weights + i * h.padded_time, h.padded_time, 1, h.v + c, h.padded_head, keys,
                         h.result + i * h.padded_head + c, h.padded_head);
            }
            for (i64 t = 0; t < time; t++)
                for (i64 i = 0; i < head; i++) out[t * width + n * head + i] = h.result[t * h.padded_head + i];
        }
    free(memory);
    return 0;
}

/* Back through norm and RoPE: grad (of the normed, turned vector) to grad_x. "normed" carries the factor extra. */
static inline void turn_back(const REAL *grad, const REAL *normed, const REAL *scales, REAL extra, const REAL *rope,
                             const Head *h, REAL *grad_x, i64 stride) {
    const i64 half = h->head / 2;
    const REAL unscale = 1 / extra;
    for (i64 t = 0; t < h->time; t++, grad += h->padded_head, normed += h->padded_head, rope += h->head, grad_x += stride) {
        REAL along = 0;
#pragma omp simd reduction(+ : along)
        for (i64 i = 0; i < h->head; i++) along += grad[i] * normed[i];
        const REAL outer = scales[t] * extra, inner = scales[t] * along * unscale / h->head;
#pragma omp simd
        for (i64 i = 0; i < half; i++) {
            const REAL first = grad[i] * outer - normed[i] * inner, second = grad[half + i] * outer - normed[half + i] * inner;
            const REAL c = rope[2 * i], s = rope[2 * i + 1];
            grad_x[2 * i] = first * c + second * s;
            grad_x[2 * i + 1] = second * c - first * s;
        }
    }
}

/* Gradient of attention, all of it recomputed from qkv: grad_out [rows, time, heads, head] to grad_qkv. */
int attention_backward(const REAL *qkv, const REAL *rope, const REAL *grad_out, REAL *grad_qkv, i64 rows, i64 time, i64 heads,
                       i64 head, double eps) {
    Head h;
    REAL *memory = open_head(&h, time, head);
    if (!memory) return 1;
    const i64 width = heads * head, wide = h.padded_time, flat = h.padded_head;
    const REAL extra = 1 / SQRT((REAL)head);
    for (i64 row = 0; row < rows; row++, qkv += time * 3 * width, grad_qkv += time * 3 * width, grad_out += time * width)
        for (i64 n = 0; n < heads; n++) {
            load_head(&h, qkv, width, n, rope, (REAL)eps);
            transpose(h.v, h.v_turned, &h);
            gather(grad_out + n * head, width, h.grad_out, &h);
            attend(&h);
            for (i64 i0 = 0; i0 < time; i0 += 8) {
                const i64 columns = up(i0 + 8, LANES);
                for (i64 j = 0; j < columns; j += LANES)
                    tile(h.grad_out + i0 * flat, flat, 1, h.v_turned + j, wide, head, h.grad_scores + i0 * wide + j, wide);
                for (i64 i = i0; i < i0 + 8; i++) {
                    REAL *grad = h.grad_scores + i * wide;
                    const REAL *weights = h.weights + i * wide;
                    vec sums = {0};
                    for (i64 j = 0; j < columns; j += LANES) sums += *(vec *)(grad + j) * *(const vec *)(weights + j);
                    REAL along = 0;
                    for (i64 lane = 0; lane < LANES; lane++) along += sums[lane];
                    for (i64 j = 0; j < columns; j += LANES)
                        *(vec *)(grad + j) = *(const vec *)(weights + j) * (*(vec *)(grad + j) - along);
                }
            }
            REAL *grad = grad_qkv + n * head;
            for (i64 i = 0; i < time; i += 8) {
                const i64 keys = i + 8 < time ? i + 8 : time;
                for (i64 c = 0; c < head; c += LANES)
                    tile(h.grad_scores + i * wide, wide, 1, h.k + c, flat, keys, h.result + i * flat + c, flat);
            }
            turn_back(h.result, h.q, h.q_scale, extra, rope, &h, grad, 3 * width);
            for (i64 j = 0; j < time; j += 8)
                for (i64 c = 0; c < head; c += LANES) {
                    tile(h.grad_scores + j * wide + j, 1, wide, h.q + j * flat + c, flat, time - j, h.result + j * flat + c, flat);
                    tile(h.weights + j * wide + j, 1, wide, h.grad_out + j * flat + c, flat, time - j, h.result_2 + j * flat + c,
                         flat);
                }
            turn_back(h.result, h.k, h.k_scale, 1, rope, &h, grad + width, 3 * width);
            for (i64 t = 0; t < time; t++)
                for (i64 i = 0; i < head; i++) grad[2 * width + t * 3 * width + i] = h.result_2[t * flat + i];
        }
    free(memory);
    return 0;
}

/* out = decay * h + drive, decay [stack, width]. */
void diagonal_step(const REAL *h, const REAL *decay, const REAL *drive, REAL *out, i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, decay += width)
        for (i64 row = 0; row < rows; row++, h += width, drive += width, out += width)
#pragma omp simd
            for (i64 i = 0; i < width; i++) out[i] = decay[i] * h[i] + drive[i];
}

/* grad_h = decay * grad, grad_decay += sum over rows of grad * h. partial: scratch [width]. */
void diagonal_step_backward(const REAL *h, const REAL *decay, const REAL *grad, REAL *grad_h, REAL *grad_decay, REAL *partial,
                            i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, decay += width, grad_decay += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, h += width, grad += width, grad_h += width) {
#pragma omp simd
            for (i64 i = 0; i < width; i++) {
                partial[i] += grad[i] * h[i];
                grad_h[i] = grad[i] * decay[i];
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_decay[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}

/* Each plane (a, b) to m (a, b) + drive, m = c (cos, sin) [stack, width / 2, 2]. */
void planar_step(const REAL *h, const REAL *m, const REAL *drive, REAL *out, i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, m += width)
        for (i64 row = 0; row < rows; row++, h += width, drive += width, out += width)
#pragma omp simd
            for (i64 i = 0; i < width; i += 2) {
                const REAL a = h[i], b = h[i + 1], c = m[i], sine = m[i + 1];
                out[i] = a * c - b * sine + drive[i];
                out[i + 1] = b * c + a * sine + drive[i + 1];
            }
}

/* grad_h = m^T grad, grad_m += sum over rows. partial: scratch [width]. */
void planar_step_backward(const REAL *h, const REAL *m, const REAL *grad, REAL *grad_h, REAL *grad_m, REAL *partial, i64 stack,
                          i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, m += width, grad_m += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, h += width, grad += width, grad_h += width) {
#pragma omp simd
            for (i64 i = 0; i < width; i += 2) {
                const REAL a = h[i], b = h[i + 1], c = m[i], sine = m[i + 1], p = grad[i], q = grad[i + 1];
                grad_h[i] = p * c + q * sine;
                grad_h[i + 1] = q * c - p * sine;
                partial[i] += p * a + q * b;
                partial[i + 1] += q * a - p * b;
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_m[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}
