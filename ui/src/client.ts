import { OutlastClient } from "@outlast/client";

export const client = new OutlastClient();
