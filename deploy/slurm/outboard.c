/* A plug-in for Slurm (SPANK): the options --remote-gpus and --remote-gpu-memory, and the variables
 * by which a task finds the devices of its job. All else does the program `outboard slurm`.
 *
 *   cc -shared -fPIC -o outboard.so outboard.c
 *   plugstack.conf:  required /usr/lib/outboard/outboard.so folder=/run/outboard-slurm
 */
#define _GNU_SOURCE
#include <errno.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(outboard, 1);

static char number[16];
static char memory[24];

/* The value of an option: digits, and at its end perhaps one of these letters. */
static int take(const char *text, const char *letters, char *into, size_t size)
{
	size_t digits = text ? strspn(text, "0123456789") : 0;

	if (digits == 0 || text[0] == '0' || strlen(text) >= size)
		return -1;
	if (text[digits] && (!strchr(letters, text[digits]) || text[digits + 1]))
		return -1;
	strcpy(into, text);
	return 0;
}

static int take_number(int value, const char *text, int is_remote)
{
	(void)value;
	if (take(text, "", number, sizeof number) == 0)
		return 0;
	if (!is_remote)
		slurm_error("--remote-gpus=%s: write how many, such as 2", text);
	return -1;
}

static int take_memory(int value, const char *text, int is_remote)
{
	(void)value;
	if (take(text, "KMGT", memory, sizeof memory) == 0)
		return 0;
	if (!is_remote)
		slurm_error("--remote-gpu-memory=%s: write a size, such as 20G", text);
	return -1;
}

static struct spank_option options[] = {
	{"remote-gpus", "N", "GPUs of the pool for the job", 1, 0, take_number},
	{"remote-gpu-memory", "SIZE", "memory of each, at least, such as 20G", 1, 0, take_memory},
};

int slurm_spank_init(spank_t spank, int count, char **words)
{
	(void)count, (void)words;
	for (size_t at = 0; at < sizeof options / sizeof *options; at++)
		if (spank_option_register(spank, &options[at]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* In srun, sbatch and salloc: job_submit.lua and the prologs hear of the options. */
int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	spank_context_t context = spank_context();

	(void)count, (void)words;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR)
		return 0;
	if (*memory && !*number) {
		slurm_error("--remote-gpu-memory goes with --remote-gpus");
		return -1;
	}
	if (*number && spank_job_control_setenv(spank, "OUTBOARD_GPUS", number, 1))
		return -1;
	if (*memory && spank_job_control_setenv(spank, "OUTBOARD_GPU_MEMORY", memory, 1))
		return -1;
	return 0;
}

/* Puts ours in front of a search path. */
static int set_in_front(spank_t spank, const char *name, const char *ours)
{
	char others[32768], *path;
	int is_set = spank_getenv(spank, name, others, sizeof others) == ESPANK_SUCCESS;
	int failed;

	if (!is_set || !*others)
		return spank_setenv(spank, name, ours, 1);
	if (asprintf(&path, "%s:%s", ours, others) < 0)
		return -1;
	failed = spank_setenv(spank, name, path, 1);
	free(path);
	return failed;
}

/* A line of the file: NAME=VALUE sets, NAME+=VALUE puts in front, NAME?=VALUE sets what is not. */
static int set(spank_t spank, char *line)
{
	char *equals = strchr(line, '=');
	char sign;

	if (!equals || equals == line)
		return -1;
	sign = equals[-1];
	*equals = 0;
	if (sign == '+' || sign == '?')
		equals[-1] = 0;
	if (sign == '+')
		return set_in_front(spank, line, equals + 1);
	return spank_setenv(spank, line, equals + 1, sign != '?') && sign != '?';
}

static FILE *file(const char *folder, uint32_t job, const char *node, const char *name)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%u.%s/%s", folder, job, node, name);
	return fopen(path, "re");
}

/* In each task, as the job's user. A job without devices has no such folder. */
int slurm_spank_task_init(spank_t spank, int count, char **words)
{
	const char *folder = "/run/outboard-slurm";
	char node[256], *line = NULL;
	size_t size = 0;
	ssize_t length;
	uint32_t job;
	int failed = 0;
	FILE *from;

	for (int at = 0; at < count; at++)
		if (strncmp(words[at], "folder=", 7) == 0)
			folder = words[at] + 7;
	if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
	    spank_getenv(spank, "SLURMD_NODENAME", node, sizeof node) != ESPANK_SUCCESS)
		return 0;
	if ((from = file(folder, job, node, "refused"))) {
		if (getline(&line, &size, from) > 0)
			slurm_error("outboard: %s", line);
		failed = -1;
	} else if ((from = file(folder, job, node, "environment"))) {
		while (!failed && (length = getline(&line, &size, from)) > 0) {
			line[length - 1] = 0;
			failed = set(spank, line);
		}
		if (failed)
			slurm_error("outboard: the task's environment cannot be set");
	} else if (errno != ENOENT) {
		slurm_error("outboard: the job's lease cannot be read: %m");
		failed = -1;
	} else if (*number) {
		slurm_error("outboard: job %u has no remote GPUs: a job asks for them, and not a step; "
			    "or Slurm's Prolog was not run on %s", job, node);
		failed = -1;
	}
	if (from)
		fclose(from);
	free(line);
	return failed ? -1 : 0;
}
