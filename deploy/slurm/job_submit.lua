-- For Slurm's controller (JobSubmitPlugins=lua): what a job asks of the pool, in whichever way,
-- becomes licences `rgpu`, and the job's comment says so to its nodes.
-- A site that has a job_submit.lua calls `outboard_submit(job)` in its slurm_job_submit, and
-- refuses the job with the sentence that it returns, if any.

local function option(job, name)
   local variables = job.spank_job_env
   if type(variables) ~= "table" then return nil end
   for _, variable in pairs(variables) do
      local value = string.match(variable, "^OUTBOARD_" .. name .. "=(%d+)")
      if value then return tonumber(value) end
   end
end

-- How many a list such as `gres:rgpu:2,gpu:1` or `rgpu:2,matlab:1` has.
local function listed(list)
   local sum, others = 0, {}
   for entry in string.gmatch(list or "", "[^,]+") do
      local rest = string.match(entry, "^%s*gres:rgpu(.*)$") or string.match(entry, "^%s*rgpu(.*)$")
      local number = rest and (rest == "" and 1 or tonumber(string.match(rest, "^[:=](%d+)$")))
      if number then
         sum = sum + number
      elseif rest and string.match(rest, "^[:=]") then
         return nil, nil, "`" .. entry .. "` is no number of devices"
      else
         table.insert(others, entry)
      end
   end
   return sum, others
end

-- The most that a field of a job's description says; larger numbers mean that nothing is said.
local LARGEST = 4294967293

function outboard_submit(job)
   local by_option = option(job, "GPUS") or 0
   local by_license, licenses, wrong = listed(job.licenses)
   if wrong then return wrong end
   local by_gres, _
   by_gres, _, wrong = listed(job.tres_per_node)
   if wrong then return wrong end
   for _, list in pairs({job.tres_per_job, job.tres_per_socket, job.tres_per_task}) do
      if string.find(list, "rgpu") then
         return "write --remote-gpus=N, which counts for the whole job"
      end
   end
   local number, ways = 0, 0
   for _, asked in pairs({by_option, by_license, by_gres}) do
      if asked > 0 and asked ~= number then
         number, ways = asked, ways + 1
      end
   end
   if number == 0 then return nil end
   if ways > 1 then return "the job asks for several numbers of remote GPUs: say one" end
   if by_gres > 0 and job.min_nodes and job.min_nodes > 1 and job.min_nodes < LARGEST then
      return "--gres=rgpu counts for each node; for several nodes write --remote-gpus=N, " ..
         "which counts for the whole job"
   end
   table.insert(licenses, "rgpu:" .. number)
   job.licenses = table.concat(licenses, ",")
   -- The one word that a job's prolog gets on its nodes from here.
   job.comment = (job.comment and job.comment .. " " or "") .. "outboard:" .. number
   return nil
end

function slurm_job_submit(job, partitions, user)
   local sentence = outboard_submit(job)
   if sentence then
      slurm.log_user("outboard: " .. sentence)
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
   return slurm.SUCCESS
end

return slurm.SUCCESS
